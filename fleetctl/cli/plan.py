"""`fleetctl plan`: exactly what would change, on every host, and what the design can see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.judge import share_of
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, RunsPath, SpecPath, finite
from fleetctl.cli.search import plan_search

Baseline = Annotated[
    str, typer.Option("--baseline", help="Expected share of bad sessions in the control.")
]

Minutes = Annotated[
    float | None,
    typer.Option(
        callback=finite,
        min=0,
        help="Minutes one run takes, for the host time; default: what A/A runs of its kind took.",
        show_default=False,
    ),
]


def plan(
    spec: SpecPath,
    inventory: InventoryPath = None,
    baseline: Baseline = "15%",
    minutes_per_run: Minutes = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show what would change and what the design can see.

    Of an experiment: the exact diff of each arm on each host. Of a matrix: its cells, their order,
    host time, power of each main effect, and what is measured already. Of a search: its builds
    and the diff of both ends.
    """
    from fleetctl.spec.bisect_kinds import search_kind
    from fleetctl.spec.kinds import is_matrix

    expected = share_of("--baseline", baseline, is_open=True)
    if is_matrix(spec):
        _plan_matrix(spec, inventory, runs, expected, minutes_per_run, as_json=as_json)
        return
    if search_kind(spec) is not None:
        plan_search(spec, inventory, runs, expected, as_json=as_json)
        return
    _plan_experiment(spec, inventory, runs, expected, minutes_per_run, as_json=as_json)


def _plan_experiment(
    spec: Path,
    inventory: Path | None,
    runs: Path,
    expected: float,
    minutes: float | None,
    *,
    as_json: bool,
) -> None:
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.report import power as power_report
    from fleetctl.store.history import History
    from fleetctl.workflow.as_found import warnings_of
    from fleetctl.workflow.deciding import undecidable
    from fleetctl.workflow.experiment import deal, read
    from fleetctl.workflow.fleet_run import plan_all
    from fleetctl.workflow.outlook import power_of
    from fleetctl.workflow.plan_text import render
    from fleetctl.workflow.reach import reached
    from fleetctl.workflow.site import named_sites, sites_of

    console = Console()
    asked = read(spec)
    fleet = the_inventory(inventory, console)
    classes = {fleet.hosts[name].host_class for name in fleet.select(asked.job.target)}
    power = power_of(asked.experiment, classes, expected, History(runs), minutes)
    dealt = deal([site.name for site in named_sites(fleet, asked.job.target)], asked)
    never = undecidable(asked.experiment, dealt, power.assumed.history)
    if not as_json:  # before any host is asked
        print_lines([*power_report.brief(power), *(f"warning: {line}" for line in never)])
    with (
        edges(runs, console) as outside,
        reached(outside, fleet, asked.job.target) as hosts,
    ):
        plans = plan_all(outside, fleet, sites_of(hosts), asked.job)
        warnings = warnings_of(plans)
    if as_json:
        sites = [found.to_json() for found in plans]
        power_json = power_report.as_json(power)
        print_json({"sites": sites, "power": power_json, "warnings": [*never, *warnings]})
    else:
        told = [f"warning: {line}" for line in warnings]
        print_lines([*(["", *told] if told else []), *render(plans)])


def _plan_matrix(
    spec: Path,
    inventory: Path | None,
    runs: Path,
    expected: float,
    minutes: float | None,
    *,
    as_json: bool,
) -> None:
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.workflow.matrix import read_matrix
    from fleetctl.workflow.matrix_run import look_at_sites

    console = Console()
    asked = read_matrix(spec)
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        looked = look_at_sites(outside, fleet, asked)
        # with the statistics, which take their time: the hosts have answered
        from fleetctl.workflow.matrix_plan import plan_matrix

        found = plan_matrix(outside, fleet, asked, looked, expected, minutes_per_run=minutes)
    from fleetctl.report.matrix_plan import as_json as plan_json
    from fleetctl.report.matrix_plan import render

    if as_json:
        print_json(plan_json(found))
    else:
        print_lines(render(found).splitlines())
