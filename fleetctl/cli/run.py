"""`fleetctl run`: a whole experiment, from the spec to the verdict, with every host restored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.afterwards import after_the_hosts_are_back
from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.judge import exit_code_of, word_of
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, RunsPath, SpecPath
from fleetctl.errors import ExitCode

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.workflow.edges import Edges
    from fleetctl.workflow.experiment import Asked
    from fleetctl.workflow.fleet_run import Measured
    from fleetctl.workflow.judging import Judged

Keep = Annotated[bool, typer.Option("--keep", help="Leave the treatment on the hosts, committed.")]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="VERDICT",
        help="End with 0 when this is the verdict, else with 9; default: the spec's.",
        show_default=False,
    ),
]


def run(
    spec: SpecPath,
    keep: Keep = False,
    expect: Expect = None,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Run an experiment: deploy, prove, measure both arms, restore, judge."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.experiment import read
    from fleetctl.workflow.experiment import run as run_experiment

    console = Console()
    asked = read(spec)
    wanted = expect or asked.experiment.verdict.expect
    if expect is not None:  # before any host is asked
        word_of(expect)
    for warning in asked.warnings:
        console.say(f"note: {warning}")
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        measured = run_experiment(outside, fleet, asked, keep=keep)
        judged = _judge(outside, asked, measured, runs)
    _print_report(measured, as_json)
    raise typer.Exit(_exit_code(judged, wanted))


def _judge(outside: Edges, asked: Asked, measured: Measured, runs: Path) -> Judged:
    from fleetctl.store.history import History
    from fleetctl.workflow.judging import judge_run

    again = f"`fleetctl resume {measured.folder.run_id}` judges what it measured"
    with after_the_hosts_are_back(again):
        judged = judge_run(measured.folder, asked, measured.facts, History(runs), ())
        word = str(judged.judgement.word)
        measured.folder.record(outside.clock.now_s(), "finished", verdict=word)
    return judged


def _print_report(measured: Measured, as_json: bool) -> None:
    if as_json:
        print_json(measured.folder.read_json("report.json"))
    else:
        text = (measured.folder.path / "report.txt").read_text(encoding="utf-8")
        print_lines(text.splitlines())


def _exit_code(judged: Judged, expected: str | None) -> ExitCode:
    """Return the exit code that tells the verdict; one that was not expected is said, too."""
    return exit_code_of(judged.judgement, None if expected is None else word_of(expected))


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or `latest`.")],
    expect: Expect = None,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Go on with a run whose controller ended; the hosts are asked, the log is not believed."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.store.run_folder import find_run
    from fleetctl.workflow.experiment import resume as resume_experiment

    console = Console()
    if expect is not None:  # before any host is asked
        word_of(expect)
    folder = find_run(runs, run_id, latest_but="repro")
    if folder.head().get("kind") == "matrix":
        from fleetctl.cli.matrix import go_on

        go_on(folder, None, inventory=inventory, runs=runs, as_json=as_json)
        return
    if folder.head().get("kind") in ("bisect", "minimize"):
        from fleetctl.cli.search import go_on as go_on_searching

        go_on_searching(folder, inventory=inventory, runs=runs, as_json=as_json)
        return
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        asked, measured = resume_experiment(outside, fleet, folder)
        judged = _judge(outside, asked, measured, runs)
    _print_report(measured, as_json)
    raise typer.Exit(_exit_code(judged, expect or asked.experiment.verdict.expect))


def aa(
    spec: SpecPath,
    count: Annotated[int, typer.Option("--runs-per-host", min=2, help="A/A runs per host.")] = 12,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Measure the control again and again, and keep its dispersion for later verdicts."""
    import dataclasses

    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.report.numbers import count as counted
    from fleetctl.store.history import History
    from fleetctl.workflow.aa import record_of, run_aa
    from fleetctl.workflow.as_found import notes_of
    from fleetctl.workflow.experiment import read

    console = Console()
    asked = read(spec)
    fleet = the_inventory(inventory, console)
    history = History(runs)
    with edges(runs, console) as outside:
        measured = run_aa(outside, fleet, asked, runs=count)
        with after_the_hosts_are_back("run `fleetctl aa` again"):
            for record in record_of(measured):
                history.add_aa(record)
            measured.folder.record(outside.clock.now_s(), "finished", trials=len(measured.facts))
    # with the statistics, which take their time: the hosts are back
    from fleetctl.workflow.judgement import matching_dispersion

    found = matching_dispersion(history, measured.facts, asked.experiment.verdict.metric)
    notes = notes_of(measured.folder)
    if as_json:
        told = {"dispersion": found and dataclasses.asdict(found), "notes": notes}
        print_json({"run": measured.folder.run_id, **told})
        return
    print_lines(f"{fact.trial}: {fact.line}" for fact in measured.facts)
    if found is None:
        print_lines(["dispersion: nothing can be said, every run was all clean or all bad"])
    else:
        names = ", ".join(found.records)
        freedom = f"{counted(found.df, 'degree')} of freedom"
        print_lines([f"dispersion {found.phi:.2f} on {freedom}, from {names}"])
    print_lines(notes)
