"""A whole experiment: read, plan, measure both arms, leave the hosts as found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.analysis.design import Order, Slot, letters_of, schedule
from fleetctl.errors import InputError
from fleetctl.spec.arms import Arms, arms_of
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.guards import check_design
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import load_experiment
from fleetctl.store.run_folder import RunFolder
from fleetctl.trial.reasons import in_words
from fleetctl.workflow.as_found import say_what_is_left
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.fleet_run import Measured, begin, measure_sites, plan_all
from fleetctl.workflow.hopeless import check_startable
from fleetctl.workflow.job import Job, job_of
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.reach import reached
from fleetctl.workflow.settling import settle_host
from fleetctl.workflow.site import sites_of

if TYPE_CHECKING:  # brings the statistics, see `_looks_at`
    from fleetctl.workflow.looks import Looks


_KEPT = "treatment"  # the arm that `--keep` leaves on the hosts


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

    @property
    def job(self) -> Job:
        """What a run of it has to do."""
        arms = (self.arms.control, self.arms.treatment)
        other = self.experiment.control.spec
        beside = (other,) if other is not None else ()
        return job_of(self.experiment, self.path, arms, kind="experiment", beside=beside)


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
    job = asked.job
    check_startable(job.workload)
    with reached(edges, inventory, job.target) as hosts:
        plans = plan_all(edges, inventory, sites_of(hosts), job)
        folder = begin(edges, job, plans, keep=_KEPT if keep else "")
        slots = deal_runs(plans, asked)
        looks = _looks_at(edges, folder, asked, slots)
        looks.keep_order()
        with folder.claimed():
            measured = measure_sites(
                edges, folder, job, plans, slots, keep=_KEPT if keep else "", ending=looks
            )
    return replace(measured, facts=looks.judged)


def _looks_at(
    edges: Edges, folder: RunFolder, asked: Asked, slots: Mapping[str, Sequence[Slot]]
) -> Looks:
    # on a starved machine scipy takes half a minute: a host that is held is refused before that,
    # and whoever can't import it hears so before any host is changed
    from fleetctl.workflow.looks import Looks  # noqa: PLC0415 - see above

    return Looks(edges, folder, asked.experiment, letters_by_site(slots))


def letters_by_site(slots: Mapping[str, Sequence[Slot]]) -> dict[str, str]:
    """Return each site's order as people write it; A is the control."""
    return {site: letters_of(each) for site, each in slots.items()}


def deal_runs(plans: Sequence[SitePlan], asked: Asked) -> dict[str, tuple[Slot, ...]]:
    """Deal the runs of each arm out to the sites; a site without a run is left alone."""
    return deal([plan.site.name for plan in plans], asked)


def deal(sites: Sequence[str], asked: Asked) -> dict[str, tuple[Slot, ...]]:
    """Deal the runs of each arm out to sites, by their names; see `deal_runs`."""
    trials = asked.experiment.trials
    dealt = {}
    for index, site in enumerate(sites):
        runs = trials.runs // len(sites) + (index < trials.runs % len(sites))
        if not runs:
            continue
        slots = schedule(
            runs,
            Order(trials.order),
            trials.seed,
            host=site,
            forced="blocks" in asked.labels,
        )
        is_measured = asked.arms.history is None
        dealt[site] = tuple(s for s in slots if is_measured or s.arm == "treatment")
    return dealt


def resume(edges: Edges, inventory: Inventory, folder: RunFolder) -> tuple[Asked, Measured]:
    """Go on with a run whose controller ended: the hosts are looked at, not the log believed.

    What the run left on a host is restored first, also where its log says that it was; then the
    trials that have no facts on disk are made. A run that was begun with `--keep` ends so.

    Raises:
        InputError: it is not an experiment, it is finished or damaged, or it is still going on.
        LeaseHeld: it goes on in another folder or on another machine.
        FleetError: as for `run`.
    """
    with folder.claimed():
        return _resume(edges, inventory, folder)


def _resume(edges: Edges, inventory: Inventory, folder: RunFolder) -> tuple[Asked, Measured]:
    head = folder.head()
    _refuse_without_a_rest(folder)
    asked = read(folder.path / "spec" / str(head.get("spec", "")))
    done = finished_trials(folder)
    with reached(edges, inventory, asked.job.target) as hosts:
        for host in hosts:
            settle_host(edges, folder, host)
        check_startable(asked.job.workload)
        plans = plan_all(edges, inventory, sites_of(hosts), asked.job)
        dealt = deal_runs(plans, asked)
        looks = _looks_at(edges, folder, asked, dealt)
        looks.remember(done.values())
        rest = {
            site: [s for s in slots if (site, s.position) not in done and not looks.is_enough]
            for site, slots in dealt.items()
        }
        say_what_is_left(edges, folder, plans)
        folder.record(edges.clock.now_s(), "resumed", trials_done=len(done))
        edges.talk.say(f"resuming {folder.run_id}: trials done: {len(done)}")
        keep = _KEPT if head.get("keep") == _KEPT else ""
        measured = measure_sites(edges, folder, asked.job, plans, rest, keep=keep, ending=looks)
    return asked, replace(measured, facts=looks.judged)


def _refuse_without_a_rest(folder: RunFolder) -> None:
    if folder.head().get("kind") != "experiment":
        raise InputError(
            f"run {folder.run_id} can't be resumed",
            why=f"it is no experiment, it is `{folder.head().get('kind')}`: each is measured whole",
            next_step="start it again, with the command that began it",
        )
    if any(event.kind == "finished" for event in folder.events()):
        raise InputError(
            f"run {folder.run_id} can't be resumed",
            why="it is finished",
            next_step=f"`fleetctl results show {folder.run_id}` shows its report",
        )


def finished_trials(folder: RunFolder) -> dict[tuple[str, int], TrialFacts]:
    """Return the trials of a run that count, by site and place in the order.

    Raises:
        InputError: a trial's facts are missing or damaged.
    """
    found = {}
    for event in folder.events():
        if event.kind == "trial" and not event.facts.get("again"):
            name = f"{event.facts.get('trial')}/facts.json"
            facts = _trial_facts(folder, name)
            found[facts.host, int(event.facts.get("slot", -1))] = facts
    return found


def _trial_facts(folder: RunFolder, name: str) -> TrialFacts:
    try:
        return TrialFacts.from_json(folder.read_table(name))
    except TypeError as error:
        raise InputError(
            f"run {folder.run_id} has no readable {name}",
            why=in_words(error),
            next_step="start a new run with `fleetctl run`",
        ) from error
