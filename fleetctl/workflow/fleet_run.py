"""A job on the sites of its target: plan everything first, then measure site by site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from fleetctl.analysis.design import Slot
from fleetctl.errors import ExitCode, FleetError, Interrupted
from fleetctl.spec.inventory import Inventory
from fleetctl.store.run_folder import RunFolder, new_run_id
from fleetctl.workflow.as_found import arms_alike, say_what_is_left
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.held import refuse_undecided
from fleetctl.workflow.job import Job
from fleetctl.workflow.prepare import SitePlan, check_on_host, plan_site
from fleetctl.workflow.restored import RestoredProof
from fleetctl.workflow.site import Site, by_machine, check_layout
from fleetctl.workflow.site_run import AllTrials, Ending, SiteRun
from fleetctl.workflow.stopping import after_a_stop
from fleetctl.workflow.telling import gravest_of, tell


@dataclass(frozen=True)
class Measured:
    """What a run measured, and how the hosts were left.

    Attributes:
        restored: what was shown about each host afterwards; empty for a kept change.
    """

    folder: RunFolder
    facts: tuple[TrialFacts, ...]
    restored: tuple[RestoredProof, ...]


def plan_all(
    edges: Edges, inventory: Inventory, sites: Sequence[Site], job: Job
) -> tuple[SitePlan, ...]:
    """Plan every arm on every host, and let the hosts look at the new files; nothing changes.

    Raises:
        FleetError: something can't be done exactly, on any of them.
    """
    for site in sites:
        check_layout(inventory, site, job.arms)
    with ThreadPoolExecutor(max(len(sites), 1)) as pool:
        plans = tuple(pool.map(lambda site: plan_site(site, job.arms, job.ready), sites))
    for plan in plans:
        check_on_host(edges, plan)
    return plans


def begin(edges: Edges, job: Job, plans: Sequence[SitePlan], *, keep: str = "") -> RunFolder:
    """Make the folder of a run that can begin, and say what it will stand on.

    Args:
        edges: the outside world.
        job: what to do.
        plans: of every site.
        keep: as for `measure_sites`; written down for whoever resumes the run.

    Raises:
        LeaseHeld: a host would give no lease; there is no folder then, as nothing was begun.
    """
    for plan in plans:
        for host in plan.hosts:
            refuse_undecided(host.reached, host.view.observed.status)
    folder = open_folder(edges, job, plans, keep=keep)
    for line in arms_alike(host for plan in plans for host in plan.hosts):
        edges.talk.say(f"warning: {line}")
    say_what_is_left(edges, folder, plans)
    return folder


def open_folder(edges: Edges, job: Job, plans: Sequence[SitePlan], *, keep: str = "") -> RunFolder:
    """Make the run's folder with everything that was asked and planned."""
    now_s = edges.clock.now_s()
    run_id = new_run_id(now_s, job.purpose, edges.salt())
    head = {
        "kind": job.kind,
        "name": job.purpose,
        "holder": edges.holder,
        "at_s": now_s,
        "target": job.target,
        "spec": next(iter(job.files), ""),
        **({"keep": keep} if keep else {}),
    }
    folder = RunFolder.create(edges.runs, run_id, head)
    for name, content in job.files.items():
        folder.write(f"spec/{name}", content)
    folder.write_json("plan.json", [plan.to_json() for plan in plans])
    for plan in plans:
        for host in plan.hosts:
            folder.write_json(f"hosts/{host.reached.name}/facts.json", host.facts_json())
    edges.talk.say(f"run {run_id}: {folder.path}")
    return folder


def measure_sites(
    edges: Edges,
    folder: RunFolder,
    job: Job,
    plans: Sequence[SitePlan],
    slots: Mapping[str, Sequence[Slot]],
    *,
    keep: str = "",
    ending: Ending | None = None,
) -> Measured:
    """Make every site's trials, those of one machine one after the other, the rest at once.

    Args:
        edges: the outside world.
        folder: of the run.
        job: what to do.
        plans: of every site.
        slots: the trials of each site, by its name; a site without any is left alone, unless it
            is named and an arm is to stay on it.
        keep: name of the arm that stays on the sites; empty restores them.
        ending: says when no further trial has to be made; None makes them all.

    Raises:
        FleetError: the gravest one, after every host was restored.
    """
    named = {site for site, each in slots.items() if each or keep}
    chosen = [plan for plan in plans if plan.site.name in named]
    runs = {
        plan.site.name: SiteRun(
            edges,
            folder,
            plan,
            slots[plan.site.name],
            job,
            prefix="" if len(plans) == 1 else f"{plan.site.name}-",
            keep=keep,
            ending=ending or AllTrials(),
        )
        for plan in chosen
    }
    groups = by_machine([plan.site for plan in chosen])
    try:
        _run_groups(edges, [[runs[site.name] for site in group] for group in groups])
    except FleetError as error:
        if isinstance(error, Interrupted):
            error.next_step = after_a_stop(job.kind, folder.run_id)
        _say_kept(error, folder, [host for run in runs.values() for host in run.kept])
        raise
    return Measured(
        folder,
        tuple(fact for run in runs.values() for fact in run.facts),
        tuple(proof for run in runs.values() for proof in run.restored),
    )


def _run_groups(edges: Edges, groups: Sequence[Sequence[SiteRun]]) -> None:
    """Run groups at once and the sites of a group in turn; one failure ends them all."""
    errors: list[FleetError] = []

    def run_group(runs: Sequence[SiteRun]) -> None:
        for run in runs:
            try:
                edges.stop.check()
                run.run()
            except FleetError as error:
                errors.append(error)
                edges.stop.ask(f"{run.plan.site.name} failed: {error.what}")
                return
            except BaseException:
                edges.stop.ask(f"{run.plan.site.name} failed: a bug in fleetctl")
                raise

    with ThreadPoolExecutor(max(len(groups), 1)) as pool:
        futures = [pool.submit(run_group, group) for group in groups]
        _wait_in_slices(futures)
    for future in futures:
        if future.exception() is not None:
            for error in errors:
                tell(edges.talk, "also failed", error)
            future.result()
    if errors:
        raise gravest_of(edges.talk, errors)


def _say_kept(error: FleetError, folder: RunFolder, kept: Sequence[str]) -> None:
    """Let a failure after `--keep` say which hosts hold the change: they are not restored."""
    if not kept:
        return
    names = ", ".join(kept)
    error.exit_code = ExitCode.FAILED_NOT_RESTORED
    error.why += f"{'; ' if error.why else ''}the change was already kept on {names}"
    error.next_step = f"`fleetctl rollback {folder.run_id}` brings {names} back"


def _wait_in_slices(futures: Sequence[Future[None]]) -> None:
    """Wait for all futures; in slices, so that the main thread hears signals."""
    pending = set(futures)
    while pending:
        pending = wait(pending, timeout=0.2).not_done
