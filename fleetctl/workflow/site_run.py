"""The trials of one site under its leases: deploy, measure, next; then restore, and prove it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.analysis.design import Slot
from fleetctl.errors import ExitCode, FleetError, NotRestored, RestoreConflict, StoreError
from fleetctl.serving.calibrate import calibrate
from fleetctl.store.run_folder import RunFolder
from fleetctl.trial.scenario import Calibration
from fleetctl.workflow.deploy import Deployed, Prepared, deploy
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.job import Job
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.measure import Measuring, measure
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.reach import reach
from fleetctl.workflow.ready import probe_of, wait_ready
from fleetctl.workflow.restored import RestoredProof, prove_restored

_ATTEMPTS = 2


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
    _deployed: Deployed | None = None
    _has_changed: bool = False

    def run(self) -> None:
        """Make the trials; whatever happens, the hosts are restored and that is proven.

        Raises:
            FleetError: with the exit code that tells the state of the hosts.
        """
        try:
            try:
                self._make()
            except (NotRestored, RestoreConflict):
                raise
            except FleetError as error:
                self._after_failure(error)
                raise
            except OSError as error:
                failed = _machine_failed(error)
                self._after_failure(failed)
                raise failed from error
            if not self.keep:
                self._prove_restored()
        except FleetError as error:
            self._record_late("failed", site=self.plan.site.name, what=error.what, why=error.why)
            raise

    def _make(self) -> None:
        with ExitStack() as stack:
            prepared = [self._hold(stack, index) for index in range(len(self.plan.hosts))]
            for slot in self.slots:
                if self.ending.is_enough:
                    break
                self._trial(prepared, slot)
            if self.keep:
                self._keep(prepared)

    def _after_failure(self, error: FleetError) -> None:
        """Prove that the hosts are back, and let the error say so."""
        if self._has_changed:
            self._prove_restored()
            if error.exit_code is ExitCode.REFUSED:
                error.exit_code = ExitCode.FAILED_RESTORED

    def _hold(self, stack: ExitStack, index: int) -> Prepared:
        host = self.plan.hosts[index]
        keeper = stack.enter_context(
            LeaseKeeper(
                host.reached.agent,
                run_id=self.folder.run_id,
                holder=self.edges.holder,
                purpose=self.job.purpose,
                unit=host.reached.host.unit,
                length_s=self.job.lease_s,
            )
        )
        self._record("held", host=host.reached.name, lease=keeper.request.id)
        return Prepared(host.reached, keeper, host.plans, self.plan.arms, host.wanted, host.within)

    def _trial(self, prepared: Sequence[Prepared], slot: Slot) -> None:
        """Make one trial; a trial that our own client spoilt is made once more."""
        for attempt in range(1, _ATTEMPTS + 1):
            self._deploy(prepared, slot.arm)
            name = f"trials/{self.prefix}{slot.position + 1:03d}-{slot.arm}"
            name += f"-{attempt}" if attempt > 1 else ""
            facts = measure(self.edges, self.plan.site, self._now(), slot, self._measuring(), name)
            spoilt = bool(facts.void_because) and not facts.disturbances
            again = spoilt and attempt < _ATTEMPTS
            self.folder.write_json(f"{name}/facts.json", facts.to_json())
            self._record("trial", trial=name, slot=slot.position, line=facts.line, again=again)
            if not again:
                self.facts.append(facts)
                self.ending.after(facts)
                return
            self.edges.talk.say(f"  trial {name} is made again: {facts.void_because[0]}")

    def _deploy(self, prepared: Sequence[Prepared], arm: str) -> None:
        """Put an arm on the site, unless it stands there and a fresh boot was not asked for."""
        if (
            self._deployed is not None
            and self._deployed.arm == arm
            and not self.job.trials.boot_per_run
        ):
            return
        self._record("deploying", site=self.plan.site.name, arm=arm)
        self._has_changed = True
        self._deployed = deploy(self.edges, self.plan.site, prepared, arm, self.job.ready)
        proof = self._deployed.proof
        self._record(
            "deployed", site=self.plan.site.name, arm=arm, shown=proof.shown, notes=proof.notes
        )

    def _now(self) -> Deployed:
        if self._deployed is None:
            raise AssertionError("a trial is measured on a deployed arm")
        return self._deployed

    def _measuring(self) -> Measuring:
        return Measuring(self.job.workload, self.job.trials.seed, self.folder, self._calibration())

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

    def _keep(self, prepared: Sequence[Prepared]) -> None:
        """Leave an arm on the site: ready, and committed through new logins."""
        if self._deployed is None or self._deployed.arm != self.keep:
            self._deploy(prepared, self.keep)
        wait_ready(self.edges, self.plan.site, self.job.ready)
        for one in prepared:
            fresh = reach(self.edges, one.host.name, one.host.host)
            try:
                one.keeper.keep(fresh.agent)
            finally:
                fresh.transport.close()
            self.kept.append(one.host.name)
            self._record("kept", host=one.host.name)
            self.edges.talk.say(
                f"{one.host.name}: kept; `fleetctl rollback {self.folder.run_id}` undoes it"
            )

    def _prove_restored(self) -> None:
        for host in self.plan.hosts:
            proof = prove_restored(self.edges, host)
            self.restored.append(proof)
            self._record_late("restored", host=proof.host, files=proof.files)

    def _record_late(self, kind: str, **facts: object) -> None:
        """Record what is true whether or not it can be written: a full disk hides no error."""
        try:
            self._record(kind, **facts)
        except StoreError as error:
            self.edges.talk.say(f"not recorded: {kind}: {error}")

    def _record(self, kind: str, **facts: object) -> None:
        self.folder.record(self.edges.clock.now_s(), kind, **facts)


def _machine_failed(error: OSError) -> StoreError:
    return StoreError(
        "this machine could not go on with the run",
        why=str(error),
        next_step="see that its disk has room, then go on with `fleetctl resume`",
    )
