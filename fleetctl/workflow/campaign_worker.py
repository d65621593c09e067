"""One site of a campaign: take a cell run, measure it, take the next; wait, or be set aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.errors import (
    DriftError,
    FleetError,
    HostError,
    InputError,
    Interrupted,
    LeaseHeld,
    NotRestored,
    RestoreConflict,
)
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import ANYWHERE, CellQueue, CellResult, CellRun, Place, RunPhase
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.campaign_rules import attempt, is_of_the_cell
from fleetctl.workflow.campaign_site import HeldSite, held_site
from fleetctl.workflow.campaign_turns import Progress, Turns
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.hopeless import Tries
from fleetctl.workflow.matrix import AskedMatrix
from fleetctl.workflow.site import NamedSite

_LOOK_EVERY_S = 1.0
_LOOK_AT_BUSY_S = 3.0
# a host on which three runs in a row fail would fail every cell before others get them
_MOST_FAULTS_IN_A_ROW = 3


class Failed(Protocol):
    """Takes note of an error."""

    def __call__(self, error: FleetError, *, ends_all: bool) -> None:
        """Remember it; `ends_all` ends the whole campaign."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What a site works with.

    Attributes:
        turns: of the site's machine.
        progress: of the site's block.
        failed: takes note of an error.
        tries: of all sites that work from this machine.
        fails_fast: a cell that failed ends the campaign.
    """

    edges: Edges
    inventory: Inventory
    folder: RunFolder
    asked: AskedMatrix
    queue: CellQueue
    turns: Turns
    progress: Progress
    failed: Failed
    tries: Tries
    fails_fast: bool = False


@dataclass
class SiteWorker:
    """What one site does in a campaign.

    Attributes:
        has_others: other sites of the block could take its runs.
        waits_for: why the site has nothing to do now; said once.
        place: among the sites of its block; runs at home there come first.
        faults: services that failed here since the last result, one for each run.
    """

    around: Surroundings
    site: NamedSite
    has_others: bool
    waits_for: str = ""
    place: Place = ANYWHERE
    faults: list[str] = field(default_factory=list)
    _told: FleetError | None = field(default=None)

    def run(self) -> None:
        """Work until the block has nothing left for this site.

        Raises:
            StoreError: this machine can't keep what is measured.
        """
        try:
            while self._has_work():
                self._visit()
        except Interrupted:
            return

    def _has_work(self) -> bool:
        """Wait until a run of the block waits; False once nothing can come any more."""
        around = self.around
        while True:
            around.edges.stop.check()
            state = around.queue.state()
            if self.site.name in state.quarantined or around.tries.given_up:
                return False
            if state.in_phase(RunPhase.WAITING, block=self.site.block):
                return True
            if not state.in_phase(RunPhase.TAKEN, block=self.site.block):
                return False
            # what another site has may be given back
            around.edges.clock.sleep(_LOOK_EVERY_S)

    def _visit(self) -> None:
        """Hold the site and measure run after run; a failure ends the visit, as found."""
        around = self.around
        opened: list[HeldSite] = []
        site = held_site(
            around.edges, around.inventory, around.folder, around.asked.job, self.site.name
        )
        try:
            with around.turns.around(
                site,
                skips_leaving=lambda: any(k.is_away for one in opened for k in one.keepers),
            ) as held:
                opened.append(held)
                self._measure_all(held)
        except (NotRestored, RestoreConflict) as error:
            self._set_aside(error)
            around.failed(error, ends_all=False)
        except (LeaseHeld, HostError) as error:
            self._wait_for(error)
        except FleetError as error:
            self._after(error)

    def _measure_all(self, held: HeldSite) -> None:
        around = self.around
        self._say_back()
        # a site that prefers the arm it has would measure the same cells in every replicate, and
        # host and cell could not be told apart
        sticks = around.asked.matrix.matrix.order == "fewest_restarts"
        with around.progress.working():
            while True:
                with around.turns.turn():
                    around.edges.stop.check()
                    if around.tries.given_up:
                        return
                    run = around.queue.take(
                        self.site.name,
                        block=self.site.block,
                        worker=around.edges.holder,
                        prefers=held.arm if sticks else "",
                        place=self.place,
                    )
                    if run is None:
                        return
                    self._attempt(held, run)

    def _attempt(self, held: HeldSite, run: CellRun) -> None:
        around = self.around
        number = f"{run.position + 1}/{len(around.queue.state().runs)}"
        around.edges.talk.say(f"{self.site.name}: cell {run.cell}, run {run.run + 1} ({number})")
        try:
            result = attempt(
                around.queue,
                run,
                lambda: self._measured(held, run),
                tries_again=not around.fails_fast,
            )
        except FleetError as error:
            self._told = error
            # what failed on another host before is hardly this one's fault
            if not (run.faults and is_of_the_cell(error)):
                self.faults.append(run.arm)
            self._record("attempt_failed", run, why=str(error))
            self._end_if_fast(run, error)
            raise
        if result is None:
            self._record("attempt_spoilt", run)
            around.edges.talk.say(f"  {self.site.name}: this trial does not count")
            return
        self.faults.clear()
        self._record("counted", run, trial=result.trial)
        done = len(around.queue.state().in_phase(RunPhase.DONE))
        around.edges.talk.say(f"  {done} of {len(around.queue.state().runs)} cell runs are done")

    def _measured(self, held: HeldSite, run: CellRun) -> CellResult:
        """Measure a run.

        Raises:
            InputError: its program does not get going, here as in the trial before.
            FleetError: it could not be measured.
        """
        result = held.measure(run, self.around.asked.job_of(run))
        facts = TrialFacts.from_json(result.facts)
        self.around.tries.after(facts, lambda: self._is_known_to_run(run))
        return result

    def _is_known_to_run(self, run: CellRun) -> bool:
        """Whether a run of the same workload was counted, by whichever controller or worker."""
        asked, workload = self.around.asked, self.around.asked.cell(run.cell).workload
        alike = {cell.name for cell in asked.cells if cell.workload == workload}
        done = self.around.queue.state().in_phase(RunPhase.DONE)
        return any(one.run.cell in alike for one in done)

    def _after(self, error: FleetError) -> None:
        """Go on after a failure that left the hosts as found, or end the campaign with it."""
        is_told, self._told = error is self._told, None
        if error is self.around.tries.given_up:
            self.around.edges.talk.say(f"{self.site.name}: {error}; no further cell is tried")
            self.around.failed(error, ends_all=False)
        elif is_told and (is_of_the_cell(error) or isinstance(error, DriftError)):
            self.around.edges.talk.say(f"{self.site.name}: {error}; as found again, the next cell")
            self._give_up_on(error)
        elif not is_told and isinstance(error, (DriftError, InputError)):
            self._set_aside(error)
            self.around.failed(error, ends_all=False)
        else:
            raise error

    def _give_up_on(self, error: FleetError) -> None:
        """Set the site aside where run after run failed here that did not fail elsewhere."""
        elsewhere = {
            one.run.arm
            for one in self.around.queue.state().runs
            if one.why and one.site not in ("", self.site.name)
        }
        own = [arm for arm in self.faults if arm not in elsewhere]
        if len(own) >= _MOST_FAULTS_IN_A_ROW and self.has_others:
            self._set_aside(error, f"{len(own)} cells in a row failed here: {error}")

    def _end_if_fast(self, run: CellRun, error: FleetError) -> None:
        """End the campaign where a failed cell ends it, once this one has no attempt left."""
        if self.around.fails_fast and is_of_the_cell(error):
            states = self.around.queue.state().in_phase(RunPhase.FAILED)
            if run.id in {state.run.id for state in states}:
                self.around.failed(error, ends_all=True)

    def _set_aside(self, error: FleetError, why: str = "") -> None:
        reason = why or str(error)
        self.around.queue.quarantine(self.site.name, reason)
        self.around.edges.talk.say(
            f"{self.site.name} is quarantined: {reason}; its cells go to other hosts"
        )
        self._record("quarantined", None, why=reason)

    def _wait_for(self, error: FleetError) -> None:
        """Wait for a busy or absent site while others work, and a while longer.

        Raises:
            FleetError: nobody has had anything to do for too long.
        """
        around = self.around
        if error is self._told:
            self._told = None
            self._give_up_on(error)
        if str(error) != self.waits_for:
            self.waits_for = str(error)
            others = "; its cells go to other hosts meanwhile" if self.has_others else ""
            around.edges.talk.say(f"{self.site.name} waits: {error}{others}")
            self._record("waits", None, why=str(error))
        if around.progress.idle_s > around.asked.matrix.matrix.patience:
            self._set_aside(error)
            return
        around.edges.clock.sleep(_LOOK_AT_BUSY_S)

    def _say_back(self) -> None:
        if self.waits_for:
            self.waits_for = ""
            self.around.edges.talk.say(f"{self.site.name} takes cells (again)")
            self._record("back", None)

    def _record(self, kind: str, run: CellRun | None, **facts: object) -> None:
        about = {} if run is None else {"cell": run.cell, "run": run.run, "id": run.id}
        now_s = self.around.edges.clock.now_s()
        self.around.folder.record(now_s, kind, site=self.site.name, **about, **facts)
