"""`fleetctl matrix`: every cell of a matrix on every equal host, and which factors matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.afterwards import after_the_hosts_are_back
from fleetctl.cli.boundary import ToldAsJson, error_as_json, missing
from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, QueueAddress, RunsPath
from fleetctl.errors import ExitCode, FleetError, InputError

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.store.run_folder import RunFolder
    from fleetctl.workflow.campaign import CampaignEnd
    from fleetctl.workflow.matrix import AskedMatrix

MatrixPath = Annotated[
    Path | None,
    typer.Argument(help="A TOML file with a matrix; with --resume, default the run's own copy."),
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Go on with a run, or `latest`: cells whose content is unchanged are reused.",
        show_default=False,
    ),
]
Withdraw = Annotated[
    str | None,
    typer.Option(
        "--withdraw",
        metavar="RUN",
        help="Take what waits of a run, or `latest`, off its queue; what is under way ends.",
        show_default=False,
    ),
]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", help="End at the first cell that can't be measured.")
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="RUN",
        help="Only show how a run, or `latest`, fares: cells, sites, quarantine.",
        show_default=False,
    ),
]


def matrix(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    spec: MatrixPath = None,
    resume: Resume = None,
    status: Status = None,
    withdraw: Withdraw = None,
    fail_fast: FailFast = False,
    queue: QueueAddress = None,
    shards: Annotated[
        int,
        typer.Option(
            "--shards",
            min=1,
            help="With --queue: spread each trial's sessions over that many client processes of "
            "any workers.",
        ),
    ] = 1,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Measure every cell of a matrix and say which factors matter."""
    from fleetctl.store.run_folder import find_run

    if shards > 1 and queue is None:
        raise InputError(
            "--shards needs --queue",
            why="one controller drives its trials' sessions by itself",
            next_step="add --queue, or leave out --shards",
        )
    if withdraw is not None:
        _withdraw(find_run(runs, withdraw, latest_but="repro"), queue, as_json)
    elif status is not None:
        _show_status(find_run(runs, status, latest_but="repro"), queue, as_json)
    elif resume is not None:
        folder = find_run(runs, resume, latest_but="repro")
        go_on(
            folder,
            spec,
            queue=queue,
            inventory=inventory,
            runs=runs,
            fail_fast=fail_fast,
            as_json=as_json,
        )
    elif spec is not None and queue is not None:
        from fleetctl.cli.worker import start_on_queue

        asked, end, now_s = start_on_queue(
            spec, queue, shards=shards, inventory=inventory, runs=runs, fail_fast=fail_fast
        )
        _finish(asked, end, runs, now_s, as_json=as_json)
    elif spec is not None:
        _start(spec, inventory, runs, fail_fast=fail_fast, as_json=as_json)
    else:
        raise missing(context, "argument 'spec', or --resume, --status or --withdraw")


def _start(
    spec: Path, inventory: Path | None, runs: Path, *, fail_fast: bool, as_json: bool
) -> None:
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.matrix import read_matrix
    from fleetctl.workflow.matrix_run import run_matrix

    console = Console()
    asked = read_matrix(spec)
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        end = run_matrix(outside, fleet, asked, fails_fast=fail_fast)
        now_s = outside.clock.now_s()
    _finish(asked, end, runs, now_s, as_json=as_json)


def go_on(
    folder: RunFolder,
    spec: Path | None,
    *,
    inventory: Path | None,
    runs: Path,
    queue: str | None = None,
    fail_fast: bool = False,
    as_json: bool = False,
) -> None:
    """Go on with a matrix; without `spec`, with the run's own copy of it."""
    if (address := _queue_of(folder, queue)) is not None:
        from fleetctl.cli.worker import resume_on_queue

        on_queue = resume_on_queue(
            folder, spec, address, inventory=inventory, runs=runs, fail_fast=fail_fast
        )
        _finish(on_queue[0], on_queue[1], runs, on_queue[2], as_json=as_json)
        return
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.matrix import read_matrix
    from fleetctl.workflow.matrix_run import resume_matrix

    console = Console()
    wanted = None if spec is None else read_matrix(spec)
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        asked, end = resume_matrix(outside, fleet, folder, wanted, fails_fast=fail_fast)
        now_s = outside.clock.now_s()
    _finish(asked, end, runs, now_s, as_json=as_json)


def _finish(
    asked: AskedMatrix, end: CampaignEnd, runs: Path, now_s: float, *, as_json: bool
) -> None:
    """Write and print the report of what was measured; then say what went wrong, if anything.

    A campaign's own error says how its hosts are: that the report failed, too, never hides it.

    Raises:
        typer.Exit: 7, when no factor is shown to move the rate.
    """
    try:
        with after_the_hosts_are_back(f"`fleetctl resume {end.folder.run_id}` writes the report"):
            _write_and_print(asked, end, runs, now_s, as_json)
    except FleetError as failed:
        if end.error is None:
            raise
        Console().say(f"no report: {failed}")
        raise end.error from failed
    if end.error is not None:
        raise ToldAsJson(end.error) if as_json else end.error
    if not end.folder.read_table("report.json")["is_firm"]:
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _write_and_print(
    asked: AskedMatrix, end: CampaignEnd, runs: Path, now_s: float, as_json: bool
) -> None:
    from fleetctl.store.history import History
    from fleetctl.workflow.matrix_report import write_report

    report = write_report(asked, end, History(runs))
    if end.error is None:
        end.folder.record(now_s, "finished", cells=len(asked.cells))
    if as_json:
        failure = {} if end.error is None else {"error": error_as_json(end.error)}
        print_json({**end.folder.read_table("report.json"), **failure})
    else:
        print_lines(report.splitlines())


def _show_status(folder: RunFolder, queue: str | None, as_json: bool) -> None:
    from fleetctl.store.campaign_sqlite import open_queue
    from fleetctl.workflow.campaign_status import status_json, status_lines

    if (address := _queue_of(folder, queue)) is not None:
        from fleetctl.cli.worker import state_on_queue

        state = state_on_queue(folder, address)
    else:
        with open_queue(folder.path) as embedded:
            state = embedded.state()
    if as_json:
        print_json(status_json(folder.run_id, state))
    else:
        print_lines(status_lines(folder.run_id, state))


def _queue_of(folder: RunFolder, named: str | None) -> str | None:
    """Return the address of the queue that a run's cells are on; None where they are on none.

    Raises:
        InputError: one is named, and the run began without.
    """
    from fleetctl.workflow.queued_matrix import queue_of

    known = queue_of(folder)
    if known is None and named is not None:
        raise InputError(
            f"run {folder.run_id} is on no queue",
            why="its cells are measured by one controller",
            next_step="leave out --queue",
        )
    return known if named is None else named


def _withdraw(folder: RunFolder, named: str | None, as_json: bool) -> None:
    """Take what waits of a run off its queue.

    Raises:
        InputError: it is on none.
    """
    from fleetctl.cli.worker import withdraw_from_queue

    if (address := _queue_of(folder, named)) is None:
        raise InputError(
            f"run {folder.run_id} is on no queue",
            why="its cells are measured by one controller",
            next_step="end that controller with Ctrl-C; it restores its hosts",
        )
    count = withdraw_from_queue(folder, address)
    if as_json:
        print_json({"run": folder.run_id, "withdrawn": count})
