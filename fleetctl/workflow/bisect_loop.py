"""Ask a site one question after the other until a search has its answer, and resume after any end.

The site is held over all of it. Each question is written down before it is asked and its answer as
soon as it is measured; a search is a fold over the answers, so a killed controller loses at most
the trial under way and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from fleetctl.analysis.counts import Run
from fleetctl.errors import (
    ApplyFailed,
    DriftError,
    EditRefused,
    ExitCode,
    FleetError,
    InputError,
    NotProven,
    NotReady,
)
from fleetctl.plan.planner import sha256
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.metric import Metric
from fleetctl.store.campaign import CellRun
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import Answered, Asked, SearchLog
from fleetctl.workflow.bisect_ground import Build, Ground
from fleetctl.workflow.campaign_site import HeldSite, held_site
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts, not_countable, run_of
from fleetctl.workflow.hopeless import hopeless, is_hopeless
from fleetctl.workflow.job import Job
from fleetctl.workflow.site import NamedSite, check_layout

Key = tuple[int, ...]
_ATTEMPTS = 3
_MOST_BROKEN_IN_A_ROW = 3
BROKEN = (ApplyFailed, NotReady, NotProven)


@dataclass(frozen=True)
class Question:
    """One run that a search wants.

    Attributes:
        key: what the search knows the build by.
        build: its name, as arm and for people.
        why: why it is asked, for people.
        confirms: as in the log.
        must_work: the search can't do without this build.
    """

    key: Key
    build: str
    why: str = ""
    confirms: int | None = None
    must_work: bool = False


class Search(Protocol):
    """What a search asks, given what it knows."""

    def next(self, answers: Sequence[Answered], unbuildable: Mapping[Key, str]) -> Question | None:
        """Return the next question, or None at the end."""
        ...

    def build(self, question: Question) -> Build:
        """Return the build of a question; raises DriftError when it can't be made."""
        ...


S = TypeVar("S", bound=Search)


@dataclass
class Searching(Generic[S]):
    """A search on one site.

    Attributes:
        job: its workload, readiness and lease; the arms come from the search.
        begin: makes the search from the held site, which is as found then.
        shared_because: why all builds use the host's caches of compiled kernels; empty where
            each gets its own.
        has_changed: hosts were changed so far, whatever the site held now has seen.
    """

    edges: Edges
    inventory: Inventory
    folder: RunFolder
    job: Job
    site: NamedSite
    begin: Callable[[HeldSite], S]
    shared_because: str = ""
    has_changed: bool = field(default=False, init=False)
    _question: Question | None = field(default=None, init=False)
    _broken: int = field(default=0, init=False)
    _broke_last: Key | None = field(default=None, init=False)

    @property
    def log(self) -> SearchLog:
        """The questions and answers so far."""
        return SearchLog(self.folder)

    def run(self) -> S:
        """Go on until the search has its answer; leave the hosts as found.

        A build that does not start is left out, and the site taken anew.

        Raises:
            FleetError: with the exit code that tells the state of the hosts.
        """
        while True:
            self._question = None
            try:
                with held_site(
                    self.edges, self.inventory, self.folder, self._bare_job(), self.site.name
                ) as held:
                    try:
                        return self._ask_all(held)
                    finally:
                        self.has_changed |= held.has_changed
            except BROKEN as error:
                self._leave_out(error)

    def _bare_job(self) -> Job:
        return replace(self.job, arms=())

    def _ask_all(self, held: HeldSite) -> S:
        search, ground = self.begin(held), Ground.of(held)
        while True:
            question = search.next(self.log.answers(), self.log.unbuildables())
            if question is None:
                return search
            self._question = question
            try:
                build = search.build(question)
                check_layout(self.inventory, held.plan.site, (build.arm,))
                ground.add(_sharing(build, self.shared_because))
            except (DriftError, EditRefused) as error:
                self._note_unbuildable(question, error)
                continue
            self._measure(held, question)
            self._broken, self._broke_last = 0, None

    def _measure(self, held: HeldSite, question: Question) -> None:
        """Make the trial of a question; one that can't be used is made again.

        Raises:
            InputError: none could be used, or the very first program does not get going.
        """
        answers = self.log.answers()
        run = sum(a.asked.key == question.key for a in answers)
        if question.confirms is not None:
            # run k of both builds of a confirmation sends the same requests
            own = [a for a in answers if a.asked.confirms == question.confirms]
            run = sum(a.asked.key == question.key for a in own)
        reasons: tuple[str, ...] = ()
        tries: list[TrialFacts] = []
        for _ in range(_ATTEMPTS):
            asked = self.log.ask(
                Asked(len(answers), question.build, question.key, question.confirms)
            )
            self.edges.talk.say(f"run {asked.number + 1}: {question.build} ({question.why})")
            result = held.measure(_cell_run(asked, run), self.job)
            facts = TrialFacts.from_json(result.facts)
            reasons = unusable(facts, self.job.metric)
            if not reasons:
                self.log.answer(Answered(asked, result.trial, result.facts))
                return
            for reason in reasons:
                if reason not in facts.void_because:  # those were said with the trial
                    self.edges.talk.say(f"  not usable: {reason}")
            tries.append(facts)
            if not answers and is_hopeless(tries):
                raise hopeless(tries, self.folder.path, f"`fleetctl resume {self.folder.run_id}`")
        raise InputError(
            f"{_ATTEMPTS} trials of {question.build} in a row could not be used",
            why="; ".join(reasons),
            next_step=f"see the trials in {self.folder.path / 'trials'};"
            f" `fleetctl resume {self.folder.run_id}` goes on when the cause is gone",
            exit_code=ExitCode.INVALID,
        )

    def _leave_out(self, error: FleetError) -> None:
        """Leave out a build that did not come up; the hosts are restored already."""
        question = self._question
        if question is None or error.exit_code is not ExitCode.FAILED_RESTORED:
            raise error
        self._broken += 1
        if self._broken > _MOST_BROKEN_IN_A_ROW:
            raise error
        if self._is_needed(question) and self._broke_last != question.key:
            # it may only start now and then
            self._broke_last = question.key
            self.edges.talk.say(f"{question.build} is started once more: {error}")
            return
        self._note_unbuildable(question, error)

    def _is_needed(self, question: Question) -> bool:
        """Whether the search can't do without a build: an end, or one that was measured before."""
        measured = any(a.asked.key == question.key for a in self.log.answers())
        return question.must_work or measured

    def _note_unbuildable(self, question: Question, error: FleetError) -> None:
        if self._is_needed(question):
            raise error
        self.edges.talk.say(f"{question.build} is left out: {error}")
        self.log.unbuildable(question.key, str(error))


def _sharing(build: Build, because: str) -> Build:
    return replace(build, arm=replace(build.arm, jit_shared_because=because))


def unusable(facts: TrialFacts, metric: Metric) -> tuple[str, ...]:
    """Return why a trial says nothing; empty when it counts."""
    reasons = (
        *facts.void_because,
        *facts.disturbances,
        *facts.unproven,
        *facts.missed_triggers,
        *not_countable(facts, metric),
    )
    if not reasons and not facts.counted:
        return ("no session of it counts",)
    return reasons


def run_of_answer(answered: Answered, metric: Metric) -> Run:
    """Return the counts of an answer."""
    return run_of(TrialFacts.from_json(answered.facts), metric)


def _cell_run(asked: Asked, run: int) -> CellRun:
    digest = sha256(asked.build.encode())
    return CellRun(
        id=f"{digest}.{asked.number}",
        cell=asked.build,
        arm=asked.build,
        digest=digest,
        run=run,
        block="",
        position=asked.number,
        attempt=asked.attempt,
    )
