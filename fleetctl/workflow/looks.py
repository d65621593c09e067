"""Declared looks at a run that is still going on: may it end here?"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleetctl.analysis.judgement import Flag, Judgement, Word
from fleetctl.spec.experiment import Experiment
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts, in_order
from fleetctl.workflow.judgement import judge_trials, usable_runs

ORDER = "order.json"
_LOOK = "look"


@dataclass
class Looks:
    """Looks at a run where its spec declares it; several sites may ask at once.

    Attributes:
        planned: the planned order on each site.
        facts: the trials made so far.
        decided: the trials as of the look that decided; later ones are not judged. None before.
    """

    edges: Edges
    folder: RunFolder
    experiment: Experiment
    planned: dict[str, str]
    facts: list[TrialFacts] = field(default_factory=list)
    decided: tuple[TrialFacts, ...] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_enough(self) -> bool:
        """Whether no further trial has to be made."""
        return self.decided is not None

    @property
    def judged(self) -> tuple[TrialFacts, ...]:
        """The trials that count."""
        return tuple(self.facts) if self.decided is None else self.decided

    def keep_order(self) -> None:
        """Write down the planned order, before the first trial."""
        self.folder.write_json(ORDER, self.planned)

    def remember(self, facts: Iterable[TrialFacts]) -> None:
        """Take trials that were made before the controller was started again."""
        self.facts.extend(in_order(facts))
        names = decided_by(self.folder)
        if names is not None:
            self.decided = tuple(fact for fact in self.facts if fact.trial in names)

    def after(self, fact: TrialFacts) -> None:
        """Take a trial, and look at the run where that was declared."""
        with self._lock:
            self.facts.append(fact)
            trials = self.experiment.trials
            if self.is_enough or trials.stop != "sequential":
                return
            runs = usable_runs(self.experiment, self.facts)
            # an arm that is ahead changes nothing at a look that was already taken
            before = usable_runs(self.experiment, self.facts[:-1])
            if runs in trials.looks and runs > before and runs < trials.runs:
                self._look(runs)

    def _look(self, runs: int) -> None:
        ordered = in_order(self.facts)
        judgement, _ = judge_trials(
            self.experiment, ordered, History(self.edges.runs), self.planned
        )
        is_enough = answers(judgement, self.experiment.verdict.expect)
        self.folder.record(
            self.edges.clock.now_s(),
            _LOOK,
            runs=runs,
            verdict=str(judgement.word),
            is_enough=is_enough,
            trials=[fact.trial for fact in ordered],
        )
        told = "the run ends here" if is_enough else "the run goes on"
        self.edges.talk.say(f"look at {runs} runs per arm: {judgement.word}; {told}")
        if is_enough:
            self.decided = ordered


def answers(judgement: Judgement, expected: str | None) -> bool:
    """Whether a look answers the question, so that further runs would only cost.

    Who hopes for "eliminated" is not served by "reduced" while more clean runs may still show it.
    """
    may_still_be_gone = (
        expected == Word.ELIMINATED
        and judgement.word is Word.REDUCED
        and judgement.treatment.counts.bad == 0
        and Flag.ELIMINATION_REFUTED not in judgement.flags
    )
    return judgement.word.is_decided and not may_still_be_gone


def decided_by(folder: RunFolder) -> frozenset[str] | None:
    """Return the names of the trials that a run's decisive look saw; None without one."""
    for event in folder.events():
        if event.kind == _LOOK and event.facts.get("is_enough"):
            return frozenset(map(str, event.facts.get("trials", ())))
    return None
