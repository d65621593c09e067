"""One rate: intervals, one-sided bounds, and what zero bad sessions prove.

Counts may be fractions: effective counts of clustered data (see `qbf`) use the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from scipy import optimize, special, stats

from fleetctl.analysis.counts import Interval
from fleetctl.errors import InputError

UNKNOWN = Interval(0.0, 1.0)


def wilson(x: float, n: float, conf: float = 0.95) -> Interval:
    """Return Wilson's score interval, for display; vacuous without sessions."""
    if n <= 0:
        return UNKNOWN
    z = float(special.ndtri((1 + conf) / 2))
    rate, weight = x / n, 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / weight
    half = z / weight * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return Interval(0.0 if x <= 0 else centre - half, 1.0 if x >= n else centre + half)


def clopper_pearson(x: float, n: float, conf: float = 0.95) -> Interval:
    """Return the exact interval, for claims; vacuous without sessions."""
    tail = (1 - conf) / 2
    return Interval(lower_bound(x, n, 1 - tail), upper_bound(x, n, 1 - tail))


def jeffreys(x: float, n: float, conf: float = 0.95) -> Interval:
    """Return the Jeffreys interval; its ends are 0 at x = 0 and 1 at x = n."""
    if n <= 0:
        return UNKNOWN
    tail = (1 - conf) / 2
    a, b = x + 0.5, n - x + 0.5
    low, high = float(stats.beta.ppf(tail, a, b)), float(stats.beta.ppf(1 - tail, a, b))
    return Interval(0.0 if x <= 0 else low, 1.0 if x >= n else high)


def upper_bound(x: float, n: float, conf: float = 0.95) -> float:
    """Return the one-sided exact (Clopper-Pearson) upper bound; 1 without sessions."""
    return float(stats.beta.ppf(conf, x + 1, n - x)) if 0 <= x < n else 1.0


def lower_bound(x: float, n: float, conf: float = 0.95) -> float:
    """Return the one-sided exact (Clopper-Pearson) lower bound; 0 without bad sessions."""
    return float(stats.beta.ppf(1 - conf, x, n - x + 1)) if 0 < x <= n else 0.0


def prob_at_least_one(p: float, n: int) -> float:
    """Return the probability that a fault of rate `p` shows in `n` independent sessions."""
    return 1 - math.exp(n * math.log1p(-p)) if p < 1 else float(n > 0)


def clean_sessions_needed(p_max: float, alpha: float = 0.05, events_allowed: int = 0) -> int:
    """Return the sessions after which a rate of `p_max` or more is excluded.

    Independent sessions are assumed; `events_allowed` of them may have been bad.

    Raises:
        InputError: no number of sessions excludes a rate of zero.
    """
    _check_open("the rate to exclude", p_max)
    _check_open("alpha", alpha)

    def excluded(n: int) -> bool:
        return bool(stats.binom.cdf(events_allowed, n, p_max) <= alpha)

    return _smallest(excluded, events_allowed + 1)


class CleanRuns(NamedTuple):
    """Clean runs after which a rate is excluded.

    Attributes:
        p_zero_per_run: probability that a run at that rate is clean.
        runs: runs needed.
        sessions: sessions in them.
    """

    p_zero_per_run: float
    runs: int
    sessions: int


def clean_runs_needed(p_max: float, rho: float, run_size: int, alpha: float = 0.05) -> CleanRuns:
    """Return the clean runs that exclude a rate of `p_max` when sessions of a run correlate.

    Raises:
        InputError: no number of runs excludes a rate of zero.
    """
    _check_open("the rate to exclude", p_max)
    _check_open("alpha", alpha)
    p_zero = math.exp(log_p_zero(p_max, rho, run_size))
    runs = _smallest(lambda k: p_zero**k <= alpha, 1)
    return CleanRuns(p_zero, runs, runs * run_size)


def log_p_zero(p: float, rho: float, sessions: int) -> float:
    """Return the log probability of a clean run under the beta-binomial with correlation `rho`."""
    if p <= 0 or sessions == 0:
        return 0.0
    if p >= 1:
        return -math.inf
    if rho <= 0:
        return sessions * math.log1p(-p)
    if rho >= 1:
        return math.log1p(-p)
    scale = 1 / rho - 1
    a, b = p * scale, (1 - p) * scale
    return float(special.betaln(a, b + sessions) - special.betaln(a, b))


def zero_event_upper(sessions: Sequence[int], rho: float, conf: float = 0.95) -> float:
    """Return the one-sided upper bound of the rate after clean runs of the given sizes.

    With `rho` = 0 this is 1 - (1 - conf)^(1/n); correlation inside runs widens it.
    """
    if not sum(sessions):
        return 1.0
    limit = math.log1p(-conf)

    def surprise(p: float) -> float:
        return sum(log_p_zero(p, rho, n) for n in sessions) - limit

    return float(optimize.brentq(surprise, 0.0, 1 - 1e-12, xtol=1e-14))


def confidence_sequence(
    x: int, n: int, alpha: float = 0.05, prior: tuple[float, float] = (0.5, 0.5)
) -> Interval:
    """Return the interval of a rate that holds at every moment one cares to look.

    Source: the beta-binomial mixture martingale (Robbins 1970); all p whose likelihood exceeds
    alpha times the mixture's.
    """
    if n == 0:
        return UNKNOWN
    a, b = prior
    limit = math.log(alpha) + float(special.betaln(a + x, b + n - x) - special.betaln(a, b))

    def support(p: float) -> float:
        return float(special.xlogy(x, p) + special.xlog1py(n - x, -p)) - limit

    tiny = 1e-15
    low = float(optimize.brentq(support, tiny, x / n, xtol=1e-14)) if x > 0 else 0.0
    high = float(optimize.brentq(support, x / n, 1 - tiny, xtol=1e-14)) if x < n else 1.0
    return Interval(low, high)


def _smallest(holds: Callable[[int], bool], start: int) -> int:
    """Return the smallest n >= start for which the (monotone) claim holds."""
    high = start
    while not holds(high):
        high *= 2
    low = max(start, high // 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _check_open(what: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(
            f"{what} is {value:g}",
            why="it must lie between 0 and 1, both excluded",
            next_step="give a share such as 0.01",
        )
