"""The smallest set of changes that keeps an effect: ddmin over a noisy test.

A set is tested by runs until its rate is clearly that of the full set or that of the empty one.
One wrong test ruins a minimisation, so each may err with probability `error / tests` only, the
declared error spread over the declared number of tests (Bonferroni).

Source: Zeller & Hildebrandt 2002, *Simplifying and isolating failure-inducing input*: the result
is 1-minimal (no single change can be left out), not the smallest of all sets. What can't be
decided or built is "unresolved" and counts as "effect not kept", as there.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fleetctl.analysis.bisection import Seen, Worlds, believe, end_rates, log_likelihood
from fleetctl.analysis.counts import ArmCounts, Cluster, Run

Subset = frozenset[int]
EITHER_WAY = Worlds(none=0.1, lowered=0.45)
"""Changes may bring a fault or mend one: both are as likely."""


class Keeps(enum.StrEnum):
    """Whether a set of changes keeps the effect."""

    YES = "yes"
    NO = "no"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class SubsetRun:
    """One measured run of the build with exactly these changes, counted from 0."""

    subset: Subset
    run: Run


@dataclass(frozen=True)
class MinimizeDesign:
    """What was declared before the first run.

    Attributes:
        changes: number of changes.
        sessions: of one run.
        error: probability that any test of the whole minimisation errs.
        tests: how many tests that error is spread over; more are not made.
        runs_per_test: after which a test is unresolved.
        end_runs: at least, of the full and of the empty set, before anything is tested.
        max_runs: of everything together.
        worlds: what is believed before the first run.
    """

    changes: int
    sessions: int
    error: float = 0.05
    tests: int = 60
    runs_per_test: int = 12
    end_runs: int = 4
    max_runs: int = 400
    worlds: Worlds = EITHER_WAY

    @property
    def error_per_test(self) -> float:
        """What a single test may err with."""
        return self.error / self.tests

    @property
    def everything(self) -> Subset:
        """The full set."""
        return frozenset(range(self.changes))


class MinimizeEnding(enum.StrEnum):
    """How a minimisation ends."""

    MINIMAL = "minimal"
    NO_EFFECT = "no_effect"
    OUT_OF_RUNS = "out_of_runs"


@dataclass(frozen=True)
class Test:
    """One test that was decided.

    Attributes:
        why: `reduce`, `re-add` or `rest`.
        runs: how many runs it took.
    """

    subset: Subset
    why: str
    keeps: Keeps
    runs: int


@dataclass(frozen=True)
class Minimized:
    """Where a minimisation ended.

    Attributes:
        ending: why it is over.
        subset: the smallest set known to keep the effect.
        direction: +1 when the changes raise the rate, -1 when they lower it; 0 while unknown.
        tests: decided tests, in order.
        masking: changes which, added to the minimal set, end the effect: it is not monotone.
        rest_keeps: whether all the others together keep the effect, too: a second cause.
    """

    ending: MinimizeEnding
    subset: Subset
    direction: int
    tests: tuple[Test, ...] = ()
    masking: Subset = frozenset()
    rest_keeps: Keeps = Keeps.UNRESOLVED

    @property
    def unresolved(self) -> tuple[Subset, ...]:
        """Sets whose test could not be decided or built."""
        return tuple(test.subset for test in self.tests if test.keeps is Keeps.UNRESOLVED)

    @property
    def not_proven_needed(self) -> Subset:
        """Changes of the set that could not be shown to be needed."""
        open_ = set(self.unresolved)
        return frozenset(c for c in self.subset if self.subset - {c} in open_)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs that interact: both needed, neither enough; or one that masks a lone culprit."""
        if len(self.subset) == 2:
            return (_ordered(*self.subset),)
        if len(self.subset) == 1:
            (culprit,) = self.subset
            return tuple(_ordered(culprit, other) for other in sorted(self.masking))
        return ()


def _ordered(first: int, second: int) -> tuple[int, int]:
    return (min(first, second), max(first, second))


@dataclass(frozen=True)
class NextTest:
    """The next run to make: of the build with exactly these changes."""

    subset: Subset
    why: str


def next_run(
    design: MinimizeDesign, runs: Sequence[SubsetRun], unbuildable: Iterable[Subset] = ()
) -> NextTest | Minimized:
    """Return what to measure after these runs, or the end; the same runs lead to the same step.

    Args:
        design: what was declared.
        runs: all runs so far.
        unbuildable: sets that can't be built, such as a diff without the one it rests on.
    """
    return _Replay(design, runs, frozenset(unbuildable)).step()


def reductions(changes: Sequence[int]) -> Generator[Subset, bool, Subset]:
    """Yield the sets that ddmin asks about, be sent whether each keeps the effect, return a set."""
    current, parts = list(changes), 2
    while len(current) >= 2:
        chunks = _split(current, parts)
        smaller = yield from _first_kept(chunks)
        if smaller is not None:
            current, parts = smaller, 2
            continue
        rests = [[c for c in current if c not in chunk] for chunk in chunks] if parts > 2 else []
        smaller = yield from _first_kept(rests)
        if smaller is not None:
            current, parts = smaller, max(parts - 1, 2)
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return frozenset(current)


def _first_kept(sets: Iterable[list[int]]) -> Generator[Subset, bool, list[int] | None]:
    for candidate in sets:
        keeps = yield frozenset(candidate)
        if keeps:
            return candidate
    return None


def _split(items: Sequence[int], parts: int) -> list[list[int]]:
    edges = [round(index * len(items) / parts) for index in range(parts + 1)]
    return [list(items[low:high]) for low, high in itertools.pairwise(edges) if high > low]


class _NeedsRun(Exception):
    """Not an error: a run is wanted."""

    def __init__(self, subset: Subset, why: str) -> None:
        super().__init__(why)
        self.subset = subset
        self.why = why


class _OutOfTests(Exception):
    """Not an error: the declared tests are spent."""


class _Replay:
    """Goes through a minimisation from its start, on the runs there are."""

    def __init__(
        self, design: MinimizeDesign, runs: Sequence[SubsetRun], unbuildable: frozenset[Subset]
    ) -> None:
        self.design = design
        self.runs = runs
        self.unbuildable = unbuildable
        self.tests: dict[Subset, Test] = {}
        self.best = design.everything
        self.direction = 0
        self.known = np.stack([log_likelihood(())] * 2)

    def step(self) -> NextTest | Minimized:
        try:
            return self._whole()
        except _NeedsRun as wanted:
            if len(self.runs) >= self.design.max_runs:
                return self._ended(MinimizeEnding.OUT_OF_RUNS)
            return NextTest(wanted.subset, wanted.why)
        except _OutOfTests:
            return self._ended(MinimizeEnding.OUT_OF_RUNS)

    def _whole(self) -> Minimized:
        if not self._ends():
            return self._ended(MinimizeEnding.NO_EFFECT)
        self._reduce()
        others = sorted(self.design.everything - self.best)
        masking = frozenset(
            other for other in others if self._keeps(self.best | {other}, "re-add") is Keeps.NO
        )
        rest = self._keeps(frozenset(others), "rest") if others else Keeps.NO
        return self._ended(MinimizeEnding.MINIMAL, masking, rest)

    def _ended(
        self,
        ending: MinimizeEnding,
        masking: Subset = frozenset(),
        rest: Keeps = Keeps.UNRESOLVED,
    ) -> Minimized:
        tests = tuple(self.tests.values())
        return Minimized(ending, self.best, self.direction, tests, masking, rest)

    def _ends(self) -> bool:
        """Tell both ends apart; whether there is an effect at all.

        Undecided ends are measured on, in turn, to twice the runs of a test.
        """
        nothing, everything = frozenset[int](), self.design.everything
        counts = {end: len(self._runs_of(end)) for end in (everything, nothing)}
        rarest = min(counts, key=lambda end: counts[end])
        if counts[rarest] < self.design.end_runs:
            raise _NeedsRun(rarest, "ends")
        seen = [
            Seen(point, *boot)
            for point, end in enumerate((nothing, everything))
            for boot in boots(self._runs_of(end))
        ]
        belief = believe(1, seen, self.design.worlds)
        sure = 1 - self.design.error_per_test
        if max(belief.best_mass, belief.reversed_mass) >= sure:
            self.direction = 1 if belief.best_mass >= sure else -1
            self._learn(nothing, Keeps.NO)
            self._learn(everything, Keeps.YES)
            return True
        if belief.none >= 1 - self.design.error:
            return False
        if counts[rarest] >= 2 * self.design.runs_per_test:
            raise _OutOfTests
        raise _NeedsRun(rarest, "ends")

    def _reduce(self) -> None:
        asking = reductions(sorted(self.design.everything))
        try:
            subset = next(asking)
            while True:
                kept = self._keeps(subset, "reduce") is Keeps.YES
                self.best = subset if kept else self.best
                subset = asking.send(kept)
        except StopIteration as ended:
            self.best = ended.value

    def _keeps(self, subset: Subset, why: str) -> Keeps:
        if subset == self.design.everything:
            return Keeps.YES
        if not subset:
            return Keeps.NO
        if subset not in self.tests:
            self.tests[subset] = self._test(subset, why)
            self._learn(subset, self.tests[subset].keeps)
        return self.tests[subset].keeps

    def _test(self, subset: Subset, why: str) -> Test:
        if subset in self.unbuildable:
            return Test(subset, why, Keeps.UNRESOLVED, 0)
        if sum(test.runs > 0 for test in self.tests.values()) >= self.design.tests:
            raise _OutOfTests
        runs = self._runs_of(subset)
        rates = end_rates(self.known, self.design.worlds, self.direction)
        ratio = log_odds(runs, rates)
        limit = float(special.logit(1 - self.design.error_per_test))
        if abs(ratio) >= limit:
            return Test(subset, why, Keeps.YES if ratio > 0 else Keeps.NO, len(runs))
        if len(runs) >= self.design.runs_per_test:
            return Test(subset, why, Keeps.UNRESOLVED, len(runs))
        raise _NeedsRun(subset, why)

    def _learn(self, subset: Subset, keeps: Keeps) -> None:
        """Let the runs of a decided test sharpen what is known of the two rates."""
        if keeps is not Keeps.UNRESOLVED:
            self.known[int(keeps is Keeps.YES)] += log_likelihood(boots(self._runs_of(subset)))

    def _runs_of(self, subset: Subset) -> list[Run]:
        return [r.run for r in self.runs if r.subset == subset and r.run.sessions]


def boots(runs: Sequence[Run]) -> tuple[Cluster, ...]:
    """Return runs joined where they share a server boot, and so its luck."""
    return ArmCounts("", tuple(runs)).clusters


def log_odds(runs: Sequence[Run], rates: np.ndarray) -> float:
    """Return the log odds that runs come from the full set's rate rather than the empty one's.

    Args:
        runs: of one set.
        rates: weights of (rho, rate) of the empty and of the full set, [2, rho, rate].
    """
    logs = log_likelihood(boots(runs))
    with np.errstate(divide="ignore"):
        empty, full = special.logsumexp(logs + np.log(rates), axis=(1, 2))
    return float(full - empty)
