"""How often a bisection names the right change, and how many runs that takes, against plain bisect.

    python benchmarks/bisection.py [--searches 500] [--changes 32] [--minimisations 40] [--json]

Every search draws its culprit and its runs anew, from a recorded seed: the real `next_step`
decides where to measure, up to and with the confirmation. The plain binary search of the same run
makes a fixed number of runs at each step and calls a build bad above the midpoint of the two
*true* rates, which nobody knows in practice; it gets the fewest runs per step with which it is
right in 95 % of the searches. Minimisations look for
a planted pair among 8 and among 16 changes. Where nothing changed, or the fault comes with some
boots only, what is said is counted, and what the confirmation says of a suspect: it is judged by
the real `judge`. Exits 1 when a scenario falls below 95 %, or when more than 5 % of searches
without a culprit end with one that is confirmed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from fleetctl.analysis.bisection import Worlds
from fleetctl.analysis.bisection_rates import RatePriors, told
from fleetctl.analysis.bisection_search import BisectDesign, End, Ending, Next, SearchRun, next_step
from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.design import Design
from fleetctl.analysis.judgement import Word
from fleetctl.analysis.minimization import (
    MinimizeDesign,
    MinimizeEnding,
    NextTest,
    SubsetRun,
    next_run,
)
from fleetctl.analysis.simulate import draw_runs
from fleetctl.analysis.verdict import judge

SESSIONS = 40
NEEDED = 0.95
MOST_RUNS_PER_STEP = 12


@dataclass(frozen=True)
class Scenario:
    """The world of a search.

    Attributes:
        good: rate before the culprit.
        bad: rate from it on.
        rho: correlation inside runs.
        told: whether the spec names the rates (`good_rate`, `bad_rate`).
    """

    good: float
    bad: float
    rho: float
    told: bool = False

    def rate(self, point: int, culprit: int) -> float:
        """Return the true rate of the build with `point` changes."""
        return self.bad if point >= culprit else self.good

    def worlds(self) -> Worlds:
        """Return what the search believes at its start."""
        if not self.told:
            return Worlds()
        return Worlds(rates=RatePriors(told(self.good), told(self.bad)))


@dataclass(frozen=True)
class Result:
    """What came of the searches of one scenario.

    Attributes:
        right: share that named the culprit.
        endings: how they ended.
        mean_runs: of the search alone, without the confirmation.
        median_runs: likewise.
        all_runs: mean, with the confirmation.
        plain_runs_per_step: of the plain search; None when no number up to 12 reached 95 %.
        plain_right: its share of right answers.
        plain_runs: runs of one plain search.
    """

    scenario: Scenario
    right: float
    endings: dict[str, int]
    mean_runs: float
    median_runs: float
    all_runs: float
    plain_runs_per_step: int | None
    plain_right: float
    plain_runs: float

    @property
    def ratio(self) -> float:
        """Runs of the plain search over ours, both without a confirmation."""
        return self.plain_runs / self.mean_runs


SCENARIOS = (
    Scenario(0.01, 0.15, 0.0),
    Scenario(0.01, 0.15, 0.05),
    Scenario(0.03, 0.15, 0.05),
    Scenario(0.03, 0.15, 0.05, told=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--searches", type=int, default=500)
    parser.add_argument("--changes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--minimisations", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    for scenario in SCENARIOS:
        results.append(measure(scenario, options.searches, options.changes, options.seed))
        if not options.json:
            print(line(results[-1]), flush=True)
    lots = []
    for world in LOTS:
        lots.append((world, say(world, options.searches, options.seed)))
        if not options.json:
            endings = ", ".join(f"{word} {share:.1%}" for word, share in lots[-1][1].items())
            print(f"{world}: {endings}", flush=True)
    pairs = [minimise(changes, options.minimisations, options.seed) for changes in (8, 16)]
    if options.json:
        told = [{**asdict(result), "ratio": result.ratio} for result in results]
        drawn = [{**asdict(world), "endings": endings} for world, endings in lots]
        pair_dicts = [pair._asdict() for pair in pairs]
        print(json.dumps({"bisect": told, "lots": drawn, "minimize": pair_dicts}))
    else:
        for pair in pairs:
            print(f"pair among {pair.changes}: right {pair.right:.1%}, runs {pair.mean_runs:.1f}")
    falsely = [found.get("wrong, confirmed", 0.0) for _, found in lots]
    rights = [*(result.right for result in results), *(pair.right for pair in pairs)]
    return int(min(rights) < NEEDED or max(falsely) > 1 - NEEDED)


@dataclass(frozen=True)
class Lots:
    """A world in which nothing changed, or boots draw lots.

    Attributes:
        rate: of bad sessions, in a boot that has the fault.
        rho: correlation inside its runs.
        boots: share of boots that have the fault.
        changes: how many there are.
        is_planted: whether a change brought the fault; else every build has it.
    """

    rate: float
    rho: float
    boots: float
    changes: int
    is_planted: bool = False


LOTS = (
    Lots(0.01, 0.0, 1.0, 8),
    Lots(0.15, 0.0, 1.0, 8),
    Lots(0.15, 0.1, 1.0, 1),
    Lots(0.15, 0.1, 1.0, 8),
    Lots(0.30, 0.0, 0.5, 8),
    Lots(0.80, 0.0, 0.5, 8),
    Lots(0.30, 0.0, 0.5, 8, is_planted=True),
    Lots(0.80, 0.0, 0.5, 8, is_planted=True),
    Lots(1.00, 0.0, 0.2, 8, is_planted=True),
)


def say(world: Lots, searches: int, seed: int) -> dict[str, float]:
    """Return what searches in a world end with, and how often."""
    rng = np.random.default_rng(seed)
    told: Counter[str] = Counter()
    for number in range(searches):
        culprit = int(rng.integers(1, world.changes + 1)) if world.is_planted else 0
        design = BisectDesign(world.changes, SESSIONS, seed=number)
        runs: list[SearchRun] = []
        while isinstance(step := next_step(design, runs), Next):
            has_fault = step.point >= culprit and rng.random() < world.boots
            rate = world.rate if has_fault else 0.0
            bad = int(draw_runs(rng, rate, world.rho, SESSIONS, (1,))[0])
            runs.append(SearchRun(step.point, Run(bad, SESSIONS), step.confirms))
        told[word_of(step, culprit, runs, world.changes)] += 1
    return {word: count / max(searches, 1) for word, count in sorted(told.items())}


def word_of(end: End, culprit: int, runs: list[SearchRun], last: int) -> str:
    """Return how a search ended: right or wrong, and whether its confirmation upholds it."""
    if end.ending not in {Ending.FOUND, Ending.REVERSED}:
        return str(end.ending)
    worse = end.culprit or 0
    better = worse - 1 if worse else last
    arms = [
        ArmCounts(
            name,
            tuple(
                replace(run.run, position=position, boot=str(position))
                for position, run in enumerate(runs)
                if (run.confirms, run.point) == (worse, point)
            ),
        )
        for name, point in (("control", worse), ("treatment", better))
    ]
    word = judge(arms[0], arms[1], design=Design(runs=4)).word
    held = "confirmed" if word in {Word.REDUCED, Word.ELIMINATED} else "suspected"
    if end.culprit is None:
        return f"{end.ending}, {held}"
    return f"{'right' if end.culprit == culprit else 'wrong'}, {held}"


class Pairs(NamedTuple):
    """How minimisations of a planted pair went; at 1 % against 15 %, rho 0.05, rates unknown."""

    changes: int
    right: float
    mean_runs: float


def minimise(changes: int, times: int, seed: int) -> Pairs:
    rng, scenario = np.random.default_rng(seed), Scenario(0.01, 0.15, 0.05)
    right, spent = 0, []
    for _ in range(times):
        pair = frozenset(int(i) for i in rng.choice(changes, 2, replace=False))
        design, runs = MinimizeDesign(changes, SESSIONS), list[SubsetRun]()
        while isinstance(step := next_run(design, runs), NextTest):
            rate = scenario.bad if pair <= step.subset else scenario.good
            runs.append(SubsetRun(step.subset, Run(draw(rng, scenario, rate), SESSIONS)))
        right += (step.ending, step.subset) == (MinimizeEnding.MINIMAL, pair)
        spent.append(len(runs))
    return Pairs(changes, right / max(times, 1), float(np.mean(spent)))


def line(result: Result) -> str:
    at = result.scenario
    steps = result.plain_runs_per_step or f"> {MOST_RUNS_PER_STEP}"
    return (
        f"{at.good:.0%} against {at.bad:.0%}, rho {at.rho:g}, rates "
        f"{'told' if at.told else 'unknown'}: right {result.right:.1%}, "
        f"runs {result.mean_runs:.1f} (median {result.median_runs:.0f}, with confirmation "
        f"{result.all_runs:.1f}); plain binary search {result.plain_right:.1%} with {steps} runs "
        f"per step, {result.plain_runs:.1f} runs: x{result.ratio:.2f}; {result.endings}"
    )


def measure(scenario: Scenario, searches: int, changes: int, seed: int) -> Result:
    rng = np.random.default_rng(seed)
    endings: Counter[str] = Counter()
    right, alone, together = 0, [], []
    for number in range(searches):
        culprit = int(rng.integers(1, changes + 1))
        design = BisectDesign(changes, SESSIONS, max_runs=80, seed=number, worlds=scenario.worlds())
        runs: list[SearchRun] = []
        while isinstance(step := next_step(design, runs), Next):
            bad = draw(rng, scenario, scenario.rate(step.point, culprit))
            runs.append(SearchRun(step.point, Run(bad, SESSIONS), step.confirms))
        right += step.culprit == culprit
        wrong = step.culprit not in (None, culprit)
        endings[f"{step.ending}{', wrong change' if wrong else ''}"] += 1
        alone.append(sum(run.confirms is None for run in runs))
        together.append(len(runs))
    plain = best_plain(scenario, searches, changes, seed)
    return Result(
        scenario,
        right / searches,
        dict(endings),
        float(np.mean(alone)),
        float(np.median(alone)),
        float(np.mean(together)),
        *plain,
    )


def draw(rng: np.random.Generator, scenario: Scenario, rate: float) -> int:
    return int(draw_runs(rng, rate, scenario.rho, SESSIONS, (1,))[0])


def best_plain(
    scenario: Scenario, searches: int, changes: int, seed: int
) -> tuple[int | None, float, float]:
    """Return the plain search with the fewest runs per step that is right often enough."""
    found = (0.0, 0.0)
    for runs in range(1, MOST_RUNS_PER_STEP + 1):
        rng = np.random.default_rng(seed)
        answers = [plain(rng, scenario, changes, runs) for _ in range(searches)]
        found = (
            float(np.mean([is_right for is_right, _ in answers])),
            float(np.mean([spent for _, spent in answers])),
        )
        if found[0] >= NEEDED:
            return runs, *found
    return None, *found


def plain(
    rng: np.random.Generator, scenario: Scenario, changes: int, runs: int
) -> tuple[bool, int]:
    culprit, spent = int(rng.integers(1, changes + 1)), 0
    limit = runs * SESSIONS * (scenario.good + scenario.bad) / 2
    low, high = 0, changes
    while high - low > 1:
        middle = (low + high) // 2
        spent += runs
        bad = sum(draw(rng, scenario, scenario.rate(middle, culprit)) for _ in range(runs))
        low, high = (low, middle) if bad > limit else (middle, high)
    return high == culprit, spent


if __name__ == "__main__":
    sys.exit(main())
