"""`fleetctl bisect` and `fleetctl minimize`: which of many changes it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli.afterwards import after_the_hosts_are_back
from fleetctl.cli.boundary import ToldAsJson, error_as_json
from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, RunsPath
from fleetctl.errors import FleetError

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.store.run_folder import RunFolder
    from fleetctl.workflow.bisect_plan import SearchPlan

SearchSpec = Annotated[
    Path, typer.Argument(metavar="SPEC", help="A TOML file with a list of changes.")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with the newest unfinished search of this very spec; no run counts twice.",
    ),
]


def bisect(
    spec: SearchSpec,
    resume: Resume = False,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Find which of an ordered list of patches or commits raised the rate, and confirm it.

    Ends with 0 for a culprit that the confirmation upholds, 7 while undecided, 9 when both ends
    are alike or the list lowers the rate.
    """
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.bisect import read_bisect, run_bisect

    console = Console()
    asked = read_bisect(spec)
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        report = run_bisect(outside, fleet, asked, resume=resume)
    # with the statistics, which take their time: the hosts are back
    from fleetctl.report.bisect import as_json as to_json
    from fleetctl.report.bisect import render

    _tell(runs / report.run_id, to_json(report), render(report), as_json)
    raise typer.Exit(report.exit_code)


def minimize(
    spec: SearchSpec,
    resume: Resume = False,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Find the few of several patches and flags that keep the effect of them all.

    Ends with 0 for a minimal set, 7 while undecided, 9 when there is no effect to keep.
    """
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.minimize import read_minimize, run_minimize

    console = Console()
    asked = read_minimize(spec)
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        report = run_minimize(outside, fleet, asked, resume=resume)
    # with the statistics, which take their time: the hosts are back
    from fleetctl.report.minimize import as_json as to_json
    from fleetctl.report.minimize import render

    _tell(runs / report.run_id, to_json(report), render(report), as_json)
    raise typer.Exit(report.exit_code)


def go_on(folder: RunFolder, *, inventory: Path | None, runs: Path, as_json: bool) -> None:
    """Go on with a search from the copy of its spec and patches in its own folder."""
    head = folder.head()
    command = minimize if head.get("kind") == "minimize" else bisect
    spec = folder.path / "spec" / str(head.get("spec", ""))
    command(spec, resume=True, inventory=inventory, runs=runs, as_json=as_json)


def _tell(folder: Path, found: dict[str, Any], text: str, as_json: bool) -> None:
    """Write the report into the run's folder and print it, also when it can't be written."""
    from fleetctl.store.run_folder import RunFolder

    run = RunFolder(folder)
    try:
        with after_the_hosts_are_back("keep what stands on stdout: it is the whole report"):
            run.write_json("report.json", found)
            run.write("report.txt", text.encode())
    except FleetError as failed:
        if not as_json:
            print_lines(text.splitlines())
            raise
        print_json({**found, "error": error_as_json(failed)})
        raise ToldAsJson(failed) from failed
    if as_json:
        print_json(found)
    else:
        print_lines(text.splitlines())


def check_search(spec: Path, as_json: bool) -> None:
    """Check a bisection or a minimisation without a network, and say what it would search."""
    from fleetctl.spec.bisect_kinds import search_kind
    from fleetctl.workflow.bisect import read_bisect
    from fleetctl.workflow.minimize import read_minimize

    kind = search_kind(spec)
    asked = read_minimize(spec) if kind == "minimize" else read_bisect(spec)
    changes = [content.name for content in asked.contents[1:]]
    if as_json:
        print_json({"spec": str(spec), "ok": True, "kind": kind, "changes": changes})
        return
    found = f"{len(changes)} changes" if changes else "commits of the host's git tree"
    print_lines([f"{spec}: ok, {kind} over {found}", *(f"  {name}" for name in changes)])


def plan_search(
    spec: Path, inventory: Path | None, runs: Path, bad_rate: float, *, as_json: bool
) -> None:
    """Show the builds of a search and what both ends change on the host."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.spec.bisect_kinds import search_kind
    from fleetctl.workflow.as_found import held_on, kept_changes
    from fleetctl.workflow.bisect import read_bisect
    from fleetctl.workflow.bisect_plan import plan_bisect, plan_minimize
    from fleetctl.workflow.minimize import read_minimize

    console = Console()
    if search_kind(spec) == "minimize":
        asked = read_minimize(spec)
        fleet = the_inventory(inventory, console)
        with edges(runs, console) as outside:
            found = plan_minimize(outside, fleet, asked)
    else:
        wanted = read_bisect(spec)
        fleet = the_inventory(inventory, console)
        with edges(runs, console) as outside:
            found = plan_bisect(outside, fleet, wanted, bad_rate)
    warnings = [*kept_changes(held_on([found.ends]))]
    if as_json:
        site = {"builds": list(found.builds), "least_runs": found.least_runs}
        told = {"sites": [found.ends.to_json()], "metric": found.metric, "warnings": warnings}
        print_json({**site, "site": found.site, **told})
    else:
        print_lines(_plan_lines(found, warnings))


def _plan_lines(found: SearchPlan, warnings: list[str]) -> list[str]:
    from fleetctl.report.metrics import about_metric
    from fleetctl.report.numbers import percent
    from fleetctl.report.terminal import wrapped
    from fleetctl.workflow.plan_text import render

    lines = [f"search on {found.site}", *(f"  {name}" for name in found.builds)]
    lines += [line for about in about_metric(found.metric) for line in wrapped(about)]
    if found.least_runs is not None:
        good, bad = found.assumed
        lines.append(
            f"at {percent(good)} against {percent(bad)} no search needs fewer than"
            f" {found.least_runs:.1f} runs on average; unknown rates and runs that vary take two"
            " to three times that"
        )
    lines += [f"warning: {line}" for line in warnings]
    return [*lines, *render([found.ends])]
