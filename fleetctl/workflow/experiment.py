"""A whole experiment: plan, hold, deploy, measure, restore, judge. Nothing outlives a failure."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from fleetctl.analysis.design import Order, Slot, schedule
from fleetctl.errors import ExitCode, FleetError, Interrupted
from fleetctl.spec.arms import Arms, arms_of
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.guards import check_design
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import load_experiment
from fleetctl.store.run_folder import RunFolder, new_run_id
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.prepare import SitePlan, check_on_host, plan_site
from fleetctl.workflow.reach import reached
from fleetctl.workflow.restored import RestoredProof
from fleetctl.workflow.site import Site, by_machine, check_layout, sites_of
from fleetctl.workflow.site_run import SiteRun


@dataclass(frozen=True)
class Asked:
    """What the user wrote, read and checked.

    Attributes:
        labels: of the guards, for report and verdict.
        warnings: what the author should know.
    """

    path: Path
    experiment: Experiment
    arms: Arms
    labels: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """What a run measured, and how the hosts were left.

    Attributes:
        restored: what was shown about each host afterwards; empty for a kept change.
    """

    folder: RunFolder
    asked: Asked
    facts: tuple[TrialFacts, ...]
    restored: tuple[RestoredProof, ...]


def read(path: Path) -> Asked:
    """Return an experiment with everything that can be known without a host.

    Raises:
        InputError: something in it can't be, or a guard refuses it.
    """
    experiment = load_experiment(path)
    arms = arms_of(experiment, path)
    guards = check_design(experiment, arms)
    return Asked(path, experiment, arms, guards.labels, guards.warnings)


def run(edges: Edges, inventory: Inventory, asked: Asked, *, keep: bool) -> Measured:
    """Run an experiment on every site of its target and leave the hosts as found.

    With `keep` the treatment stays on them, committed.

    Raises:
        FleetError: with the exit code that tells the state of the hosts.
    """
    with reached(edges, inventory, asked.experiment.experiment.target) as hosts:
        sites = sites_of(hosts)
        plans = plan_all(edges, inventory, sites, asked)
        folder = open_folder(edges, asked, plans)
        facts, restored = _measure_all(edges, folder, plans, asked, keep=keep)
        return Measured(folder, asked, facts, restored)


def plan_all(
    edges: Edges, inventory: Inventory, sites: Sequence[Site], asked: Asked
) -> tuple[SitePlan, ...]:
    """Plan both arms on every host, and let the hosts look at the new files; nothing changes."""
    arms = (asked.arms.control, asked.arms.treatment)
    for site in sites:
        check_layout(inventory, site, arms)
    with ThreadPoolExecutor(max(len(sites), 1)) as pool:
        plans = tuple(
            pool.map(lambda site: plan_site(site, arms, soak_s=asked.experiment.ready.soak), sites)
        )
    for plan in plans:
        check_on_host(edges, plan)
    return plans


def open_folder(edges: Edges, asked: Asked, plans: Sequence[SitePlan]) -> RunFolder:
    """Make the run's folder with everything that was asked and planned."""
    now_s = edges.clock.now_s()
    run_id = new_run_id(now_s, asked.experiment.name, edges.salt())
    head = {
        "kind": "experiment",
        "name": asked.experiment.name,
        "holder": edges.holder,
        "at_s": now_s,
        "target": asked.experiment.experiment.target,
        "spec": asked.path.name,
    }
    folder = RunFolder.create(edges.runs, run_id, head)
    folder.write(f"spec/{asked.path.name}", asked.path.read_bytes())
    for arm in (asked.arms.control, asked.arms.treatment):
        for content in arm.patches:
            for name, data in content.files.items():
                folder.write(
                    f"spec/{content.patch.source.rstrip('/')}{'/' if name else ''}{name}", data
                )
    folder.write_json("plan.json", [plan.to_json() for plan in plans])
    for plan in plans:
        for host in plan.hosts:
            folder.write_json(f"hosts/{host.reached.name}/facts.json", host.facts_json())
    edges.talk.say(f"run {run_id}: {folder.path}")
    return folder


def _measure_all(
    edges: Edges, folder: RunFolder, plans: Sequence[SitePlan], asked: Asked, *, keep: bool
) -> tuple[tuple[TrialFacts, ...], tuple[RestoredProof, ...]]:
    """Measure the sites, those of one machine one after the other, the rest at once."""
    chosen = _with_runs(plans, asked)
    jobs = {
        plan.site.name: SiteRun(
            edges,
            folder,
            plan,
            slots,
            asked.experiment,
            prefix="" if len(chosen) == 1 else f"{plan.site.name}-",
            keep=keep,
        )
        for plan, slots in chosen
    }
    groups = by_machine([plan.site for plan, _ in chosen])
    run_groups(edges, [[jobs[site.name] for site in group] for group in groups])
    return (
        tuple(fact for job in jobs.values() for fact in job.facts),
        tuple(proof for job in jobs.values() for proof in job.restored),
    )


def run_groups(edges: Edges, groups: Sequence[Sequence[SiteRun]]) -> None:
    """Run groups of jobs at once and the jobs of a group in turn; one failure ends them all.

    Raises:
        FleetError: the gravest one; the others were said.
    """
    errors: list[FleetError] = []

    def run_group(jobs: Sequence[SiteRun]) -> None:
        for job in jobs:
            try:
                edges.stop.check()
                job.run()
            except FleetError as error:
                errors.append(error)
                edges.stop.ask(f"{job.plan.site.name} failed: {error.what}")
                return

    with ThreadPoolExecutor(max(len(groups), 1)) as pool:
        futures = [pool.submit(run_group, group) for group in groups]
        wait_interruptibly(futures)
    for future in futures:
        future.result()
    if errors:
        gravest = max(errors, key=lambda error: (gravity(error), -errors.index(error)))
        for error in errors:
            if error is not gravest and not isinstance(error, Interrupted):
                edges.talk.say(f"also failed: {error}")
        raise gravest


def wait_interruptibly(futures: Sequence[Future[None]]) -> None:
    """Wait for all futures in slices, so that the main thread hears signals."""
    pending = set(futures)
    while pending:
        pending = wait(pending, timeout=0.2).not_done


def gravity(error: FleetError) -> int:
    """Return how much an error outweighs others: an unrestored host most, an interruption least."""
    order = (ExitCode.INTERRUPTED, ExitCode.REFUSED, ExitCode.FAILED_RESTORED, ExitCode.CONFLICT)
    if error.exit_code in order:
        return order.index(error.exit_code)
    return len(order)


def _with_runs(plans: Sequence[SitePlan], asked: Asked) -> list[tuple[SitePlan, tuple[Slot, ...]]]:
    """Deal the runs of each arm out to the sites; a site without a run is left alone."""
    trials = asked.experiment.trials
    chosen = []
    for index, plan in enumerate(plans):
        runs = trials.runs // len(plans) + (index < trials.runs % len(plans))
        if runs:
            slots = schedule(
                runs,
                Order(trials.order),
                trials.seed,
                host=plan.site.name,
                forced="blocks" in asked.labels,
            )
            wanted = [
                slot for slot in slots if asked.arms.history is None or slot.arm == "treatment"
            ]
            chosen.append((plan, tuple(wanted)))
    return chosen
