"""`fleetctl plan`: exactly what would change, on every host, and what the design can see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.judge import share_of
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, SpecPath

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
    as_json: AsJson = False,
) -> None:
    """Show the exact diff of each arm on each host, and what the design can see."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.experiment import read
    from fleetctl.workflow.fleet_run import plan_all
    from fleetctl.workflow.reach import reached
    from fleetctl.workflow.site import sites_of

    console = Console()
    expected = share_of("--baseline", baseline, is_open=True)
    asked = read(spec)
    fleet = the_inventory(inventory, console)
    with (
        edges(DEFAULT_RUNS, console) as outside,
        reached(outside, fleet, asked.job.target) as hosts,
    ):
        plans = plan_all(outside, fleet, sites_of(hosts), asked.job)
        power = _power_lines(asked, expected)
    if as_json:
        print_json({"sites": [found.to_json() for found in plans], "power": power})
        return
    print_lines(power)
    print_lines(_plan_lines(plans))


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
