"""Plan a matrix whose hosts were looked at: say what would be done and what it could show."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetctl.analysis.matrix_hosts import confounded_with_hosts, home
from fleetctl.analysis.matrix_power import main_effect_power
from fleetctl.analysis.power import Assumed
from fleetctl.errors import FleetError
from fleetctl.report.matrix_plan import MatrixPlan, PlannedBlock, PlannedCell
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import CellRun, RunPhase
from fleetctl.store.campaign_sqlite import open_queue
from fleetctl.store.run_folder import RunFolder, list_runs
from fleetctl.workflow.as_found import held_on, kept_changes
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.matrix import (
    AskedMatrix,
    cell_runs,
    order_on,
    sites_of_blocks,
    terms_of,
)
from fleetctl.workflow.matrix_report import factors_of
from fleetctl.workflow.matrix_run import LookedAt
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.site import NamedSite


@dataclass(frozen=True)
class Earlier:
    """What earlier runs of a matrix know.

    Attributes:
        run_id: of the newest one that has results of the present cells; empty without one.
        done: ids of cell runs that it has.
        run_s: time of one run on one host; None where nobody knows.
    """

    run_id: str = ""
    done: frozenset[str] = field(default_factory=frozenset)
    run_s: float | None = None


def plan_matrix(
    edges: Edges,
    inventory: Inventory,
    asked: AskedMatrix,
    looked: LookedAt,
    baseline_rate: float,
    *,
    minutes_per_run: float | None = None,
) -> MatrixPlan:
    """Return what a matrix would do.

    Args:
        edges: the outside world.
        inventory: with the hosts of the target.
        asked: the matrix.
        looked: what `look_at_sites` saw.
        baseline_rate: assumed for the power.
        minutes_per_run: of host time; None takes what an earlier run of the matrix took.
    """
    runs = cell_runs(asked, inventory)
    earlier = earlier_results(edges.runs, asked.matrix.experiment.name, runs)
    if minutes_per_run is not None:
        earlier = replace(earlier, run_s=60 * minutes_per_run)
    verdict = asked.matrix.verdict
    assumed = Assumed(asked.matrix.workload.sessions, alpha=verdict.alpha, metric=verdict.metric)
    fraction = asked.fraction
    names = [factor.name for factor in asked.matrix.factor]
    return MatrixPlan(
        name=asked.matrix.experiment.name,
        cells=tuple(_cells(asked, runs, earlier)),
        order=tuple((run.cell, run.run, run.block) for run in runs),
        homes=_homes(asked, looked.sites, runs),
        blocks=tuple(_blocks(asked, looked.sites, runs, earlier)),
        effects=main_effect_power(
            factors_of(asked.matrix),
            [dict(cell.levels) for cell in asked.cells],
            asked.matrix.trials.runs,
            baseline_rate,
            assumed,
        ),
        assumed=assumed,
        baseline_rate=baseline_rate,
        run_s=earlier.run_s,
        earlier=earlier.run_id,
        resolution=fraction.resolution_name,
        aliases={
            name: [fraction.spelled(alias) for alias in found]
            for name in names
            if (found := fraction.aliases([name]))
        },
        touched=files_that_cells_change(looked.plans),
        lent={h.reached.name: len(h.lent) for plan in looked.plans for h in plan.hosts},
        absent={site: str(error) for site, error in looked.absent.items()},
        notes=tuple(_notes(asked, looked, runs)),
    )


def earlier_results(root: Path, name: str, runs: Sequence[CellRun]) -> Earlier:
    """Return what the newest run of a matrix of that name has of the present cells."""
    wanted = {run.id for run in runs}
    for folder in reversed(list_runs(root)):
        try:
            head = folder.head()
            if head.get("kind") != "matrix" or head.get("name") != name:
                continue
            with open_queue(folder.path) as queue:
                done = {one.run.id for one in queue.state().in_phase(RunPhase.DONE)}
        except FleetError:
            continue
        return Earlier(
            folder.run_id if done & wanted else "", frozenset(done & wanted), _run_s(folder)
        )
    return Earlier()


def _run_s(folder: RunFolder) -> float | None:
    """Return the median time from a cell's deployment to its counted result."""
    began: dict[str, float] = {}
    took: list[float] = []
    for event in folder.events():
        site = str(event.facts.get("site", ""))
        if event.kind == "deploying":
            began[site] = event.at_s
        elif event.kind == "counted" and site in began:
            took.append(event.at_s - began.pop(site))
    return statistics.median(took) if took else None


def _cells(asked: AskedMatrix, runs: Sequence[CellRun], earlier: Earlier) -> Iterable[PlannedCell]:
    for cell in asked.cells:
        own = [run for run in runs if run.cell == cell.name]
        measured = sum(run.id in earlier.done for run in own)
        yield PlannedCell(cell.name, own[0].digest[:12], len(own), measured)


def _blocks(
    asked: AskedMatrix, sites: Sequence[NamedSite], runs: Sequence[CellRun], earlier: Earlier
) -> Iterable[PlannedBlock]:
    most = asked.matrix.matrix.per_machine
    for name in dict.fromkeys(site.block for site in sites):
        own = [site for site in sites if site.block == name]
        machines = Counter(site.machine for site in own)
        at_once = sum(min(number, most) for number in machines.values())
        todo = [run for run in runs if run.block == name]
        left = sum(run.id not in earlier.done for run in todo)
        wall_s = None if earlier.run_s is None else math.ceil(left / at_once) * earlier.run_s
        yield PlannedBlock(name, tuple(s.name for s in own), at_once, len(todo), left, wall_s)


def files_that_cells_change(plans: Iterable[SitePlan]) -> dict[str, tuple[str, ...]]:
    """Return host -> files that some cell changes there; lent directories are none of them."""
    return {
        host.reached.name: tuple(
            path
            for path, state in host.touched.items()
            if state.kind != "directory" and path not in host.lent
        )
        for plan in plans
        for host in plan.hosts
    }


def _homes(
    asked: AskedMatrix, sites: Sequence[NamedSite], runs: Sequence[CellRun]
) -> tuple[str, ...]:
    """Return the site that takes each run first; empty where sites take what comes."""
    if asked.matrix.matrix.order != "seeded":
        return ()
    names = {block: [s.name for s in sites if s.block == block] for block in sites_of_blocks(sites)}
    return tuple(names[r.block][home(r.position, len(names[r.block]))] for r in runs)


def host_notes(asked: AskedMatrix, sites: Sequence[NamedSite]) -> Iterable[str]:
    """Yield what can't be told from the hosts, as the cells are dealt.

    Another dealing may tell one of these terms apart, and lose others for it: that all of them
    can be told is what was looked for and not found.
    """
    blocks = sites_of_blocks(sites)
    if asked.matrix.matrix.order != "seeded":
        if max(blocks.values()) > 1:
            yield (
                "hosts take what comes, so a difference between hosts may look like an effect: "
                'order = "seeded" deals cells out evenly'
            )
        return
    found = confounded_with_hosts(order_on(asked, sites), terms_of(asked), blocks)
    for block, terms in found.items():
        names = ", ".join(" x ".join(term) for term in terms)
        yield (
            f"{names} can't be told from the hosts of {block} as the cells are dealt, and no "
            "dealing was found that tells everything apart: more `runs` or fewer hosts may, a host "
            "group of one does"
        )


def _notes(asked: AskedMatrix, looked: LookedAt, runs: Sequence[CellRun]) -> Iterable[str]:
    yield from kept_changes(held_on(looked.plans))
    unused = {site.block for site in looked.sites} - {run.block for run in runs}
    for block in sorted(unused):
        yield (
            f"no run is made on {block}: each of the {asked.matrix.trials.runs} replicates is a "
            "complete set of cells on equal hosts"
        )
    yield from host_notes(asked, looked.sites)
    if asked.matrix.matrix.order == "fewest_restarts":
        yield "runs of one service are made together: a drift in time looks like an effect of it"
    if asked.matrix.trials.runs == 1 and not asked.matrix.generators:
        yield "one run per cell: what cells of one level differ in is taken as chance"
    yield from _unlike(looked)


def _unlike(looked: LookedAt) -> Iterable[str]:
    """Yield hosts that are called equal and differ, as found, in files that cells change."""
    blocks = {host: site.block for site in looked.sites for host in site.hosts}
    seen: dict[tuple[str, str], tuple[str, str | None]] = {}
    for plan in looked.plans:
        for host in plan.hosts:
            tree = host.reached.host.tree
            for path, state in host.touched.items():
                if not path.startswith(f"{tree}/python/"):
                    continue
                key = (blocks[host.reached.name], path.removeprefix(tree))
                other = seen.setdefault(key, (host.reached.name, state.sha256))
                if other[1] != state.sha256:
                    unlike = f"{other[0]} and {host.reached.name}"
                    yield f"{unlike} are called equal, and differ in {path}"
