"""`fleetctl plan`: exactly what would change, on every host, and what the design can see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.judge import share_of
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, RunsPath, SpecPath
from fleetctl.cli.search import plan_search

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.workflow.experiment import Asked
    from fleetctl.workflow.prepare import SitePlan

Baseline = Annotated[
    str, typer.Option("--baseline", help="Expected corruption rate of the control, for the power.")
]


def plan(
    spec: SpecPath,
    inventory: InventoryPath = None,
    baseline: Baseline = "15%",
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show what would change and what the design can see.

    Of an experiment: the exact diff of each arm on each host. Of a matrix: its cells, their order,
    host time, power of each main effect, and what is measured already. Of a search: its builds
    and the diff of both ends.
    """
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.spec.bisect_kinds import search_kind
    from fleetctl.spec.kinds import is_matrix
    from fleetctl.workflow.experiment import read
    from fleetctl.workflow.fleet_run import plan_all
    from fleetctl.workflow.reach import reached
    from fleetctl.workflow.site import sites_of

    console = Console()
    expected = share_of("--baseline", baseline, is_open=True)
    if is_matrix(spec):
        _plan_matrix(spec, inventory, runs, expected, as_json=as_json)
        return
    if search_kind(spec) is not None:
        plan_search(spec, inventory, runs, expected, as_json=as_json)
        return
    asked = read(spec)
    fleet = the_inventory(inventory, console)
    with (
        edges(runs, console) as outside,
        reached(outside, fleet, asked.job.target) as hosts,
    ):
        plans = plan_all(outside, fleet, sites_of(hosts), asked.job)
        power = _power_lines(asked, expected)
    if as_json:
        print_json({"sites": [found.to_json() for found in plans], "power": power})
        return
    print_lines(power)
    print_lines(_plan_lines(plans))


def _plan_matrix(
    spec: Path, inventory: Path | None, runs: Path, expected: float, *, as_json: bool
) -> None:
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.report.matrix_plan import as_json as plan_json
    from fleetctl.report.matrix_plan import render
    from fleetctl.workflow.matrix import read_matrix
    from fleetctl.workflow.matrix_plan import plan_matrix

    console = Console()
    asked = read_matrix(spec)
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        found = plan_matrix(outside, fleet, asked, expected)
    if as_json:
        print_json(plan_json(found))
    else:
        print_lines(render(found).splitlines())


def _plan_lines(plans: tuple[SitePlan, ...]) -> list[str]:
    from fleetctl.workflow.prepare import render

    return [line for found in plans for line in ("", *render(found))]


def _power_lines(asked: Asked, baseline: float) -> list[str]:
    """Return what this design can see."""
    from fleetctl.analysis.power import Assumed, power_table
    from fleetctl.report.power import render

    sessions = asked.experiment.workload.sessions
    table = power_table(baseline, Assumed(sessions), runs=asked.experiment.trials.runs)
    return render(table).splitlines()
