"""Run a matrix, or go on with one: look at all hosts, put the runs on the queue, let sites work."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import DriftError, FleetError, HostError, InputError, LeaseHeld
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import CampaignState, CellRun, RunPhase
from fleetctl.store.campaign_sqlite import FILE_NAME, SqliteQueue, open_queue
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.as_found import say_what_is_left
from fleetctl.workflow.campaign import Campaign, CampaignEnd
from fleetctl.workflow.campaign_site import planned, reached_site
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.fleet_run import open_folder
from fleetctl.workflow.held import refuse_undecided
from fleetctl.workflow.hopeless import check_startable
from fleetctl.workflow.matrix import AskedMatrix, cell_runs, read_matrix, refuse_equal_on_host
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.settling import settle_host
from fleetctl.workflow.site import NamedSite, named_sites

_MOST_AT_ONCE = 16


@dataclass(frozen=True)
class LookedAt:
    """The sites of a target before anything is changed.

    Attributes:
        plans: of the sites that could be planned.
        absent: site -> why it could not be looked at; it may come later.
    """

    sites: tuple[NamedSite, ...]
    plans: tuple[SitePlan, ...]
    absent: dict[str, FleetError]


def look_at_sites(
    edges: Edges,
    inventory: Inventory,
    asked: AskedMatrix,
    *,
    passed_over: tuple[type[FleetError], ...] = (HostError, LeaseHeld),
) -> LookedAt:
    """Plan every cell on every site that answers; nothing is changed.

    Sites that are busy, undecided or away are left out and named; what can't be done on one that
    answers is an error for all.

    Args:
        edges: the outside world.
        inventory: with the hosts of the target.
        asked: the matrix.
        passed_over: what leaves out a site instead of ending everything.

    Raises:
        InputError: a cell can't be made, or two are equal on a host.
        DriftError: a host is not what spec and inventory say.
        FleetError: no site can be used now.
    """
    sites = named_sites(inventory, asked.job.target)
    plans: list[SitePlan] = []
    absent: dict[str, FleetError] = {}
    with ThreadPoolExecutor(_MOST_AT_ONCE) as pool:
        futures = [pool.submit(_look_at, edges, inventory, asked, site) for site in sites]
    for site, future in zip(sites, futures, strict=True):
        try:
            plans.append(future.result())
        except passed_over as error:
            absent[site.name] = error
            edges.talk.say(f"{site.name} can't be used now: {error}")
    if not plans:
        raise next(iter(absent.values()))
    for plan in plans:
        refuse_equal_on_host(asked, plan)
    return LookedAt(sites, tuple(plans), absent)


def _look_at(edges: Edges, inventory: Inventory, asked: AskedMatrix, site: NamedSite) -> SitePlan:
    with reached_site(edges, inventory, site) as found:
        plan = planned(edges, inventory, found, asked.job)
        for host in plan.hosts:
            refuse_undecided(host.reached, host.view.observed.status)
        return plan


def run_matrix(
    edges: Edges, inventory: Inventory, asked: AskedMatrix, *, fails_fast: bool = False
) -> CampaignEnd:
    """Measure every run of every cell and leave the hosts as found.

    Raises:
        FleetError: nothing could be started; later errors are in what is returned.
    """
    check_programs(asked)
    looked = look_at_sites(edges, inventory, asked)
    folder = open_folder(edges, asked.job, looked.plans)
    say_what_is_left(edges, folder, looked.plans)
    runs = cell_runs(asked, inventory)
    with folder.claimed(), SqliteQueue(folder.path / FILE_NAME) as queue:
        queue.put(runs)
        edges.talk.say(
            f"{len(asked.cells)} cells, {len(runs)} runs, on {len(looked.plans)} of "
            f"{len(looked.sites)} sites"
        )
        campaign = Campaign(edges, inventory, folder, asked, queue, looked.sites, fails_fast)
        return campaign.run(reused=())


def resume_matrix(
    edges: Edges,
    inventory: Inventory,
    folder: RunFolder,
    asked: AskedMatrix | None = None,
    *,
    fails_fast: bool = False,
) -> tuple[AskedMatrix, CampaignEnd]:
    """Go on with a matrix whose controller ended: finished runs are reused, the rest is made.

    A finished run is reused only where its cell's content hash is still the same. What the dead
    controller left on hosts is restored first.

    Args:
        edges: the outside world.
        inventory: as it is now.
        folder: of the run.
        asked: the matrix as it is now; None takes the run's own copy.
        fails_fast: a cell that fails ends the campaign.

    Raises:
        InputError: the run is no matrix, or another process works on it.
        FleetError: as for `run_matrix`.
    """
    _check_matrix(folder)
    with folder.claimed(), open_queue(folder.path) as queue:
        asked = asked or read_matrix(own_spec(folder))
        runs = cell_runs(asked, inventory)
        before = queue.state()
        queue.begin_again(run.id for run in runs)
        queue.put(runs)
        reused = [one.run.id for one in queue.state().in_phase(RunPhase.DONE)]
        _say_reused(edges, before, runs, reused)
        sites = named_sites(inventory, asked.job.target)
        for site in sites:
            settle(edges, inventory, folder, site)
        check_programs(asked)
        # a host that broke meanwhile is set aside, and the others go on
        patient = (HostError, LeaseHeld, DriftError)
        looked = look_at_sites(edges, inventory, asked, passed_over=patient)
        _keep_files(edges, folder, asked)
        say_what_is_left(edges, folder, looked.plans)
        folder.record(edges.clock.now_s(), "resumed", reused=len(reused), runs=len(runs))
        campaign = Campaign(edges, inventory, folder, asked, queue, looked.sites, fails_fast)
        return asked, campaign.run(reused)


def check_programs(asked: AskedMatrix) -> None:
    """Look for the programs of all cells on this machine before any host is changed for them.

    Raises:
        InputError: one can't be started.
    """
    for cell in asked.cells:
        check_startable(cell.workload)


def own_spec(folder: RunFolder) -> Path:
    """Return the path of the spec that the run was last made of."""
    names = [str(e.facts["spec"]) for e in folder.events() if e.kind == "spec"]
    return folder.path / (names[-1] if names else f"spec/{folder.head().get('spec', '')}")


def _check_matrix(folder: RunFolder) -> None:
    if folder.head().get("kind") != "matrix":
        raise InputError(
            f"run {folder.run_id} is no matrix",
            why=f"it is of kind {folder.head().get('kind')}",
            next_step=f"`fleetctl resume {folder.run_id}`",
        )


def _say_reused(
    edges: Edges, before: CampaignState, runs: Sequence[CellRun], reused: Sequence[str]
) -> None:
    """Say which finished runs are reused, and which are not because their content changed."""
    known = {run.id for run in runs}
    cells = {run.cell: run.digest for run in runs}
    done = before.in_phase(RunPhase.DONE)
    edges.talk.say(f"reused: {len(reused)} of {len(runs)} runs are measured already")
    for cell in dict.fromkeys(run.cell for run in runs if run.id in set(reused)):
        edges.talk.say(f"  reused {cell}")
    for cell in dict.fromkeys(one.run.cell for one in done if one.run.id not in known):
        why = "its content has changed" if cell in cells else "it is not in the matrix any more"
        edges.talk.say(f"  not reused {cell}: {why}")


def settle(edges: Edges, inventory: Inventory, folder: RunFolder, site: NamedSite) -> None:
    """Restore what this run left on a site, and end its leases; an absent site does it itself.

    Raises:
        LeaseHeld: the run goes on in another folder or on another machine.
    """
    try:
        with reached_site(edges, inventory, site) as found:
            for host in found.hosts:
                settle_host(edges, folder, host)
    except HostError as error:
        edges.talk.say(f"{site.name} can't be looked at: {error}")


def _keep_files(edges: Edges, folder: RunFolder, asked: AskedMatrix) -> None:
    """Keep a changed matrix beside the one that the run began with."""
    if asked.path.resolve().is_relative_to(folder.path.resolve()):
        return
    number = 2 + len(list(folder.path.glob("spec-*")))
    for name, content in asked.job.files.items():
        folder.write(f"spec-{number}/{name}", content)
    folder.record(edges.clock.now_s(), "spec", spec=f"spec-{number}/{asked.path.name}")
