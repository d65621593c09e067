"""Exact operating characteristics: how often a rule errs or succeeds, by enumeration.

Totals of bad sessions are sums of (beta-)binomial runs, so their distribution is a convolution;
looking repeatedly is a dynamic programme over both arms' totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import linalg, special, stats

from fleetctl.analysis.counts import Interval
from fleetctl.analysis.sequential import obf_looks

TIE = 1e-7


def run_pmf(p: float, rho: float, run_size: int) -> np.ndarray:
    """Return the distribution of bad sessions in one run; shape [run_size + 1]."""
    x = np.arange(run_size + 1)
    if rho <= 0 or p in (0, 1):
        return np.asarray(stats.binom.pmf(x, run_size, p))
    if rho >= 1:
        return np.where(x == 0, 1 - p, np.where(x == run_size, p, 0.0))
    scale = 1 / rho - 1
    return np.asarray(stats.betabinom.pmf(x, run_size, p * scale, (1 - p) * scale))


def total_pmf(p: float, rho: float, runs: int, run_size: int) -> np.ndarray:
    """Return the distribution of bad sessions in all runs; shape [runs * run_size + 1]."""
    size = runs * run_size + 1
    spectrum = np.fft.rfft(run_pmf(p, rho, run_size), size) ** runs
    return np.asarray(np.maximum(np.fft.irfft(spectrum, size), 0.0))


def fisher_table(nb: int, nc: int) -> np.ndarray:
    """Return Fisher's two-sided p of every pair of counts; shape [nb + 1, nc + 1]."""
    xb, xc = np.arange(nb + 1)[:, None], np.arange(nc + 1)[None, :]
    total = xb + xc
    log_p = _log_choose(nb, xb) + _log_choose(nc, xc) - _log_choose(nb + nc, total)
    probability = np.exp(log_p)
    p = np.empty_like(probability)
    for s in range(nb + nc + 1):
        control = np.arange(max(0, s - nc), min(s, nb) + 1)
        own = probability[control, s - control]
        ranked = np.sort(own)
        upto = np.searchsorted(ranked, own * (1 + TIE), side="right")
        p[control, s - control] = np.cumsum(ranked)[upto - 1]
    return np.asarray(np.minimum(p, 1.0))


def _log_choose(n: int, k: np.ndarray) -> np.ndarray:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))


def fisher_power(n_per_arm: int, p1: float, p2: float, alpha: float = 0.05) -> float:
    """Return how often Fisher's test rejects with independent sessions."""
    rejected = fisher_table(n_per_arm, n_per_arm) < alpha
    return float(run_pmf(p1, 0, n_per_arm) @ rejected @ run_pmf(p2, 0, n_per_arm))


def fisher_type1(
    p: float, rho: float, runs_per_arm: int, run_size: int, alpha: float = 0.05
) -> float:
    """Return how often Fisher's test rejects two equal arms whose runs are clustered."""
    n = runs_per_arm * run_size
    pmf = total_pmf(p, rho, runs_per_arm, run_size)
    return float(pmf @ (fisher_table(n, n) < alpha) @ pmf)


def coverage(
    interval: Callable[[float, float, float], Interval],
    p: float,
    rho: float,
    runs: int,
    run_size: int,
    conf: float = 0.95,
) -> float:
    """Return how often an interval made for independent sessions holds the true rate."""
    n = runs * run_size
    pmf = total_pmf(p, rho, runs, run_size)
    ends = [interval(x, n, conf) for x in range(n + 1)]
    return float(sum(m for m, end in zip(pmf, ends, strict=True) if end.low <= p <= end.high))


StopRegion = Callable[[int], np.ndarray]


def crossing(
    run_control: np.ndarray, run_treatment: np.ndarray, looks: int, stops: StopRegion
) -> tuple[float, ...]:
    """Return the probability of having stopped by each look.

    Args:
        run_control: distribution of what one look adds to the control's total.
        run_treatment: the same for the treatment.
        looks: number of looks.
        stops: for the number of a look (from 1), where it stops; bool, [totals, totals].
    """
    alive = np.ones((1, 1))
    stopped, cumulative = 0.0, []
    for look in range(1, looks + 1):
        rows = linalg.convolution_matrix(run_control, alive.shape[0])
        columns = linalg.convolution_matrix(run_treatment, alive.shape[1])
        alive = rows @ alive @ columns.T
        region = stops(look)
        stopped += float(alive[region].sum())
        alive = np.where(region, 0.0, alive)
        cumulative.append(stopped)
    return tuple(cumulative)


def fisher_peeking(
    p: float, run_size: int, looks: int, alpha: float = 0.05, rho: float = 0.0
) -> tuple[float, ...]:
    """Return the type-I error after each look when one tests by Fisher after every pair of runs."""
    run = run_pmf(p, rho, run_size)
    return crossing(run, run, looks, lambda k: fisher_table(k * run_size, k * run_size) < alpha)


def z_peeking(
    p: float, run_size: int, looks: int, alpha: float = 0.05, rho: float = 0.0
) -> tuple[float, ...]:
    """Return the type-I error after each look of a pooled z test at the full level each time."""
    limit = float(-special.ndtri(alpha / 2))
    run = run_pmf(p, rho, run_size)
    return crossing(run, run, looks, lambda k: np.abs(z_table(k * run_size)) > limit)


def obf_peeking(
    p: float, sessions_per_look: int, looks: int, alpha: float = 0.05
) -> tuple[float, ...]:
    """Return the type-I error after each look of a pooled z test at O'Brien-Fleming bounds."""
    bounds = obf_looks([look / looks for look in range(1, looks + 1)], alpha)
    run = run_pmf(p, 0, sessions_per_look)
    return crossing(
        run, run, looks, lambda k: np.abs(z_table(k * sessions_per_look)) >= bounds[k - 1].z
    )


def z_table(n: int) -> np.ndarray:
    """Return the pooled z statistic of every pair of counts of n; shape [n + 1, n + 1]."""
    x = np.arange(n + 1)
    pooled = (x[:, None] + x[None, :]) / (2 * n)
    error = np.sqrt(pooled * (1 - pooled) * 2 / n)
    difference = (x[None, :] - x[:, None]) / n
    return np.divide(difference, error, out=np.zeros_like(error), where=error > 0)


def evalue_crossing(
    p1: float,
    p2: float,
    run_size: int,
    looks: int,
    threshold: float,
    alternatives: Sequence[Sequence[float]],
) -> tuple[float, ...]:
    """Return how often the averaged session e-value has reached `threshold` by each look."""
    log_threshold = math.log(threshold)

    def stops(look: int) -> np.ndarray:
        return evalue_table(look * run_size, alternatives) >= log_threshold

    return crossing(run_pmf(p1, 0, run_size), run_pmf(p2, 0, run_size), looks, stops)


def evalue_table(n: int, alternatives: Sequence[Sequence[float]]) -> np.ndarray:
    """Return the log of the averaged session e-value of every pair of counts of n."""
    x = np.arange(n + 1)

    def likelihood(bad: np.ndarray, sessions: int, p: float) -> np.ndarray:
        return np.asarray(special.xlogy(bad, p) + special.xlog1py(sessions - bad, -p))

    logs = [
        likelihood(x, n, pb)[:, None]
        + likelihood(x, n, pc)[None, :]
        - likelihood(x[:, None] + x[None, :], 2 * n, (pb + pc) / 2)
        for pb, pc in alternatives
    ]
    return np.asarray(special.logsumexp(np.stack(logs), axis=0) - math.log(len(logs)))
