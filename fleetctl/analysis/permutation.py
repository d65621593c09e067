"""Exact tests over orders and arrangements of a handful of runs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class PermutationTest(NamedTuple):
    """Outcome of an exact permutation test.

    Attributes:
        p: two-sided: twice the smaller side, at most 1.
        arrangements: ways to deal the runs to the arms.
        min_p: the smallest p that this number of runs can give.
    """

    p: float
    arrangements: int
    min_p: float


def run_permutation_test(
    control: Sequence[float], treatment: Sequence[float]
) -> PermutationTest | None:
    """Return the exact test of bad sessions per run; None with an empty arm.

    Runs are assumed to be of one size. Visits all arrangements: for about 10 runs an arm.
    """
    if not control or not treatment:
        return None
    runs = [*control, *treatment]
    size = len(treatment)
    scale = len(runs) / size
    seen, total = sum(treatment), sum(runs)
    slack = 1e-9 * max(1.0, abs(total) * scale)
    sums = [sum(chosen) for chosen in itertools.combinations(runs, size)]
    low = sum(value <= seen + slack for value in sums)
    high = sum(value >= seen - slack for value in sums)
    arrangements = len(sums)
    return PermutationTest(
        min(1.0, 2 * min(low, high) / arrangements), arrangements, min(1.0, 2 / arrangements)
    )


def min_p_paired_blocks(pairs: int) -> float:
    """Return the smallest two-sided p that a sign-flip test of so many pairs can give."""
    return min(1.0, 2.0 ** (1 - pairs))


class DriftTest(NamedTuple):
    """Kendall's tau-b of counts on time; tau is None where all counts are equal."""

    tau: float | None
    p: float


def drift_test(counts_in_time_order: Sequence[float]) -> DriftTest | None:
    """Return the exact test of a trend over time, ties kept; None with fewer than two runs."""
    return drift_test_stratified([counts_in_time_order])


def drift_test_stratified(series: Sequence[Sequence[float]]) -> DriftTest | None:
    """Return the exact test of a common trend in several series, each in time order.

    Kendall's S is summed over the series, so an effect of the arm is no trend.
    None where no series has two runs.
    """
    series = [counts for counts in series if len(counts) > 1]
    if not series:
        return None
    score, pairs, untied = 0, 0, 0
    ways = Counter({0: 1})
    for counts in series:
        own = _score_ways(counts)
        ways = _sum_of(ways, own)
        score += _kendall_score(counts)
        pairs += math.comb(len(counts), 2)
        untied += max(own)
    extreme = sum(count for value, count in ways.items() if abs(value) >= abs(score))
    tau = score / math.sqrt(pairs * untied) if untied else None
    return DriftTest(tau, extreme / sum(ways.values()))


def _kendall_score(counts: Sequence[float]) -> int:
    """Return concordant minus discordant pairs of counts and time."""
    return sum((b > a) - (b < a) for a, b in itertools.combinations(counts, 2))


def _score_ways(counts: Sequence[float]) -> Counter[int]:
    """Return how many distinct orders of the counts give each Kendall score.

    Orders of a multiset have inversions distributed as a q-multinomial coefficient, built here
    group by group: placing g equal counts among m larger ones adds the inversions of a choice.
    """
    sizes = list(Counter(counts).values())
    untied = math.comb(len(counts), 2) - sum(math.comb(size, 2) for size in sizes)
    inversions, placed = Counter({0: 1}), 0
    for size in sizes:
        inversions = _sum_of(inversions, _choice_inversions(size, placed))
        placed += size
    return Counter({untied - 2 * value: count for value, count in inversions.items()})


def _choice_inversions(group: int, others: int) -> Counter[int]:
    """Return the coefficients of the Gaussian binomial [group + others over group]."""
    ways = [Counter({0: 1})] + [Counter[int]() for _ in range(group)]
    for weight in range(1, group + others + 1):
        for taken in range(min(weight, group), 0, -1):
            shifted = {value + weight - taken: n for value, n in ways[taken - 1].items()}
            ways[taken].update(shifted)
    return ways[group]


def _sum_of(a: Counter[int], b: Counter[int]) -> Counter[int]:
    total: Counter[int] = Counter()
    for (x, m), (y, n) in itertools.product(a.items(), b.items()):
        total[x + y] += m * n
    return total


def linear_drift_bias(order: str, slope_per_run: float = 1.0) -> float | None:
    """Return by how much a linear drift fakes "B minus A" in an order such as "ABBA".

    None where an arm is missing.
    """
    places = {name: [i for i, arm in enumerate(order) if arm == name] for name in "AB"}
    if not (places["A"] and places["B"]):
        return None
    mean = {name: sum(at) / len(at) for name, at in places.items()}
    return slope_per_run * (mean["B"] - mean["A"])
