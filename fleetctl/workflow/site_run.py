"""The trials of one site under its leases: deploy, measure, next; then restore, and prove it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fleetctl.analysis.design import Slot
from fleetctl.errors import (
    ExitCode,
    FleetError,
    LeaseHeld,
    NotRestored,
    RestoreConflict,
    StoreError,
)
from fleetctl.serving.calibrate import calibrate
from fleetctl.store.run_folder import RunFolder
from fleetctl.trial.scenario import Calibration
from fleetctl.workflow.deploy import Deployed, Prepared, deploy
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.hopeless import hopeless, is_hopeless
from fleetctl.workflow.job import Job
from fleetctl.workflow.keep import keep_all
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.measure import Measuring, measure
from fleetctl.workflow.prepare import HostPlan, SitePlan
from fleetctl.workflow.presence import PATIENCE_S, come_back, through_absences, what_is_left
from fleetctl.workflow.ready import probe_of, wait_ready
from fleetctl.workflow.restored import RestoredProof, prove_restored
from fleetctl.workflow.settling import lease_mark
from fleetctl.workflow.telling import gravest_of, machine_failed, tell

_ATTEMPTS = 2
# what is said of a failure before all hosts were seen to be as found
_NOW_RESTORED = (ExitCode.REFUSED, ExitCode.FAILED_NOT_RESTORED, ExitCode.CONFLICT)


class Ending(Protocol):
    """Says when a run has its answer; sites ask it from several threads."""

    @property
    def is_enough(self) -> bool:
        """Whether no further trial has to be made."""
        ...

    def after(self, fact: TrialFacts) -> None:
        """Take a trial that was made."""
        ...


class AllTrials:
    """Every planned trial is made."""

    is_enough = False

    def after(self, fact: TrialFacts) -> None:
        """Take a trial that was made."""


@dataclass
class SiteRun:
    """What one site does in a run.

    Attributes:
        slots: the trials to make, in order.
        prefix: of trial names, where several sites measure.
        keep: name of the arm that stays on the site, committed; empty restores it.
        ending: says when no further trial has to be made.
        facts: of the trials made so far.
        restored: what was shown about each host afterwards.
        kept: hosts whose change was committed: a later failure does not bring them back.
        patience_s: how long a host that went away may take to answer again.
    """

    edges: Edges
    folder: RunFolder
    plan: SitePlan
    slots: Sequence[Slot]
    job: Job
    prefix: str = ""
    keep: str = ""
    ending: Ending = field(default_factory=AllTrials)
    facts: list[TrialFacts] = field(default_factory=list)
    restored: list[RestoredProof] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    patience_s: float = PATIENCE_S
    _deployed: Deployed | None = None
    _has_changed: bool = False
    _keepers: list[LeaseKeeper] = field(default_factory=list)
    _tries: Counter[int] = field(default_factory=Counter)

    def run(self) -> None:
        """Make the trials; whatever happens, the hosts are restored and that is proven.

        Raises:
            FleetError: with the exit code that tells the state of the hosts.
        """
        try:
            self._make_and_restore()
        except FleetError as error:
            self._record_late("failed", site=self.plan.site.name, what=error.what, why=error.why)
            raise

    def _make_and_restore(self) -> None:
        failed: FleetError | None = None
        try:
            self._make()
        except FleetError as error:
            failed = error
        except OSError as error:
            failed = machine_failed(error, resume=self._resume or "a new run")
            failed.__cause__ = error
        left = self._what_is_left(failed)
        if left:
            if failed is not None and failed not in left:
                tell(self.edges.talk, f"{self.plan.site.name} failed", failed)
            raise gravest_of(self.edges.talk, left) from failed
        if failed is not None:
            if self._has_changed and failed.exit_code in _NOW_RESTORED:
                failed.exit_code = ExitCode.FAILED_RESTORED
            raise failed

    def _what_is_left(self, failed: FleetError | None) -> list[FleetError]:
        """Look at every host that is to be as found again; return what is left to do on some."""
        if self.kept or (failed is not None and not self._has_changed):
            return []
        # who said that a host is not back has waited for it already; now reality decides
        patience_s = 0.0 if isinstance(failed, NotRestored) else self.patience_s
        left = what_is_left(self.edges, self._keepers, self._resume, patience_s)
        names = [keeper.name for keeper in left]
        errors = list(left.values())
        for host in self.plan.hosts:
            if host.reached.name not in names and not _was_taken(failed):
                found = self._unproven(host)
                # files that somebody changed differ, of course: that is a conflict, and told
                errors += [failed] if found and isinstance(failed, RestoreConflict) else found
        return errors

    def _unproven(self, host: HostPlan) -> list[FleetError]:
        """Prove that a host is back; return the error when it is not."""
        try:
            proof = prove_restored(self.edges, host)
        except NotRestored as error:
            return [error]
        self.restored.append(proof)
        self._record_late("restored", host=proof.host, files=proof.files)
        return []

    def _make(self) -> None:
        with ExitStack() as stack:
            prepared = [self._hold(stack, index) for index in range(len(self.plan.hosts))]
            through = partial(through_absences, self.edges, self._keepers, back=self._come_back)
            for slot in self.slots:
                if self.ending.is_enough:
                    break
                through(act=partial(self._trial, prepared, slot))
            if self.keep:
                through(act=partial(self._keep, prepared))

    def _come_back(self, away: Sequence[str], error: FleetError) -> None:
        names = ", ".join(away)
        self.edges.talk.say(
            f"{names}: went away ({error}); waiting up to {self.patience_s:g} s for an answer"
        )
        self._record("away", hosts=list(away), why=str(error))
        self._deployed = None
        come_back(self.edges, self._keepers, self._resume, self.patience_s)
        for host in self.plan.hosts:
            prove_restored(self.edges, host)
        leases = [keeper.request.id for keeper in self._keepers]
        self._record("back", hosts=list(away), leases=leases)
        self.edges.talk.say(
            f"{names}: back, as found and held again; what was interrupted is redone"
        )

    @property
    def _resume(self) -> str:
        """The command that goes on with this run later, where there is one."""
        return f"`fleetctl resume {self.folder.run_id}`" if self.job.kind == "experiment" else ""

    def _hold(self, stack: ExitStack, index: int) -> Prepared:
        host = self.plan.hosts[index]
        run_id = self.folder.run_id
        stack.enter_context(self.edges.stop.holds(self.job.kind, run_id, host.reached.name))
        keeper = stack.enter_context(
            LeaseKeeper(
                host.reached,
                run_id=self.folder.run_id,
                holder=self.edges.holder,
                purpose=self.job.purpose,
                length_s=self.job.lease_s,
                mark=lease_mark(self.folder),
            )
        )
        self._keepers.append(keeper)
        self._record("held", host=host.reached.name, lease=keeper.request.id)
        return Prepared(
            host.reached,
            keeper,
            host.plans,
            self.plan.arms,
            host.wanted,
            host.within,
            host.own_flags,
        )

    def _trial(self, prepared: Sequence[Prepared], slot: Slot, edges: Edges) -> None:
        """Make one trial; a trial that our own client spoilt is made once more.

        Raises:
            InputError: it is the first one, and the workload's program does not get going.
            ConnectionLost, LeaseHeld: a host was lost beside it; what it measured does not count.
        """
        tries: list[TrialFacts] = []
        for attempt in range(1, _ATTEMPTS + 1):
            self._deploy(prepared, slot.arm, edges)
            name = self._name_of(slot)
            facts = measure(edges, self.plan.site, self._now(), slot, self._measuring(), name)
            spoilt = bool(facts.void_because) and not facts.disturbances
            lost = any(one.keeper.is_disturbed for one in prepared)
            tries.append(facts)
            in_vain = not self.facts and is_hopeless(tries)
            again = lost or in_vain or (spoilt and attempt < _ATTEMPTS)
            self.folder.write_json(f"{name}/facts.json", facts.to_json())
            self._record("trial", trial=name, slot=slot.position, line=facts.line, again=again)
            if lost:
                edges.stop.check()
            if in_vain:
                raise hopeless(tries, self.folder.path, self._resume)
            if not again:
                self.facts.append(facts)
                self.ending.after(facts)
                return
            self.edges.talk.say(f"  trial {name} is made again")  # why was said with it

    def _name_of(self, slot: Slot) -> str:
        """Return the next name for a trial of a slot: what was interrupted stays as it is."""
        self._tries[slot.position] += 1
        name = f"trials/{self.prefix}{slot.position + 1:03d}-{slot.arm}"
        number = self._tries[slot.position]
        return f"{name}-{number}" if number > 1 else name

    def _deploy(self, prepared: Sequence[Prepared], arm: str, edges: Edges) -> None:
        """Put an arm on the site, unless it stands there and a fresh boot was not asked for."""
        if (
            self._deployed is not None
            and self._deployed.arm == arm
            and not self.job.trials.boot_per_run
        ):
            return
        self._record("deploying", site=self.plan.site.name, arm=arm)
        self._has_changed = True
        self._deployed = deploy(edges, self.plan.site, prepared, arm, self.job.ready)
        proof = self._deployed.proof
        self._record(
            "deployed", site=self.plan.site.name, arm=arm, shown=proof.shown, notes=proof.notes
        )

    def _now(self) -> Deployed:
        if self._deployed is None:
            raise AssertionError("a trial is measured on a deployed arm")
        return self._deployed

    def _measuring(self) -> Measuring:
        job = self.job
        return Measuring(
            job.workload, job.trials.seed, self.folder, self._calibration(), job.metric
        )

    def _calibration(self) -> Calibration:
        """Return how tokens become words: measured once per run, the same for both arms."""
        if self.folder.has("calibration.json"):
            return Calibration(**self.folder.read_json("calibration.json"))
        entry = self.plan.site.entry
        with probe_of(self.edges, entry, entry.host.router_url or entry.host.service_url) as probe:
            found = calibrate(probe, entry.host.model)
        self.folder.write_json(
            "calibration.json", {"tokens_per_word": found.tokens_per_word, "source": found.source}
        )
        return found

    def _keep(self, prepared: Sequence[Prepared], edges: Edges) -> None:
        """Leave an arm on the site: ready, and committed through new logins, on all hosts."""
        if self._deployed is None or self._deployed.arm != self.keep:
            self._deploy(prepared, self.keep, edges)
        wait_ready(edges, self.plan.site, self.job.ready)
        keep_all(self.edges, [(one.host, one.keeper) for one in prepared])
        for one in prepared:
            self.kept.append(one.host.name)
            self._record_late("kept", host=one.host.name)
            self.edges.talk.say(
                f"{one.host.name}: kept; `fleetctl rollback {self.folder.run_id}` undoes it"
            )

    def _record_late(self, kind: str, **facts: object) -> None:
        """Record what is true whether or not it can be written: a full disk hides no error."""
        try:
            self._record(kind, **facts)
        except StoreError as error:
            self.edges.talk.say(f"not recorded: {kind}: {error}")

    def _record(self, kind: str, **facts: object) -> None:
        self.folder.record(self.edges.clock.now_s(), kind, **facts)


def _was_taken(error: FleetError | None) -> bool:
    """Tell whether somebody else works on a host by now: how it is, is theirs to say."""
    return isinstance(error, LeaseHeld) and error.exit_code is ExitCode.FAILED_RESTORED
