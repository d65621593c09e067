"""How much runs differ beyond chance: dispersion, correlation inside runs, and their model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

from fleetctl.analysis.counts import Cluster, pearson

LARGEST_LOGIT = 30.0


@dataclass(frozen=True)
class RunDispersion:
    """How the runs of one arm spread around their common rate.

    Attributes:
        rate: pooled rate.
        x2: Pearson's statistic.
        df: runs - 1.
        chi2_p: p of equal rates; a high value proves nothing with few runs.
        phi: x2 / df; 1 means no more spread than independent sessions have.
        icc: correlation inside runs by analysis of variance; None where nothing or all is bad.
        design_effect: 1 + (m - 1) icc, m being the mean run size.
        rao_scott: variance of the pooled rate over its binomial variance.
        tarone_z: Tarone's score test of correlation.
    """

    rate: float
    x2: float
    df: int
    chi2_p: float
    phi: float
    icc: float | None
    design_effect: float | None
    rao_scott: float | None
    tarone_z: float | None


def run_dispersion(clusters: Sequence[Cluster]) -> RunDispersion | None:
    """Return the dispersion of one arm; None with fewer than two runs, where it is unknowable."""
    kept = [cluster for cluster in clusters if cluster.sessions]
    if len(kept) < 2:
        return None
    x2, df = pearson(kept)
    bad, total = sum(c.bad for c in kept), sum(c.sessions for c in kept)
    rate = bad / total
    chi2_p = float(stats.chi2.sf(x2, df))
    if bad in (0, total):
        return RunDispersion(rate, x2, df, chi2_p, 0.0, None, None, None, None)
    icc = _anova_icc(kept, rate)
    spread = sum((c.bad - c.sessions * rate) ** 2 for c in kept)
    binomial = rate * (1 - rate)
    return RunDispersion(
        rate=rate,
        x2=x2,
        df=df,
        chi2_p=chi2_p,
        phi=x2 / df,
        icc=icc,
        design_effect=None if icc is None else 1 + (total / len(kept) - 1) * icc,
        rao_scott=len(kept) * spread / (df * total * binomial),
        tarone_z=_tarone_z(kept, rate, spread / binomial),
    )


def _anova_icc(clusters: Sequence[Cluster], rate: float) -> float | None:
    """Return the correlation inside runs; None with one session per run.

    Source: analysis-of-variance estimator, (MSB - MSW) / (MSB + (m0 - 1) MSW).
    """
    total, runs = sum(c.sessions for c in clusters), len(clusters)
    m0 = (total - sum(c.sessions**2 for c in clusters) / total) / (runs - 1)
    between = sum(c.sessions * (c.bad / c.sessions - rate) ** 2 for c in clusters) / (runs - 1)
    if total == runs:
        return None
    within = sum(c.bad * (1 - c.bad / c.sessions) for c in clusters) / (total - runs)
    return (between - within) / (between + (m0 - 1) * within)


def _tarone_z(clusters: Sequence[Cluster], rate: float, scaled_spread: float) -> float | None:
    """Return Tarone's Z (Tarone 1979): zero on average when sessions are independent."""
    pairs = sum(c.sessions * (c.sessions - 1) for c in clusters)
    total = sum(c.sessions for c in clusters)
    return (scaled_spread - total) / math.sqrt(2 * pairs) if pairs else None


class BetaBinomialFit(NamedTuple):
    """The likeliest beta-binomial.

    Attributes:
        p: mean rate.
        rho: correlation inside runs.
        loglik: its log likelihood.
        lrt_vs_binom: twice the gain over independent sessions.
    """

    p: float
    rho: float
    loglik: float
    lrt_vs_binom: float


def betabinom_mle(clusters: Sequence[Cluster]) -> BetaBinomialFit | None:
    """Return the likeliest beta-binomial; None with fewer than two runs or nothing to tell.

    Needs about six runs to mean much.
    """
    kept = [cluster for cluster in clusters if cluster.sessions]
    bad, total = sum(c.bad for c in kept), sum(c.sessions for c in kept)
    if len(kept) < 2 or bad in (0, total):
        return None
    rate = bad / total
    loglik = _betabinom_loglik(kept)
    binomial = loglik(rate, 0.0)

    def loss(at: np.ndarray) -> float:
        return -loglik(float(special.expit(at[0])), math.exp(min(float(at[1]), LARGEST_LOGIT)))

    # at[1] is log(rho / (1 - rho)); from several starts, because the surface is flat near rho = 0.
    fits = [
        optimize.minimize(
            loss,
            np.array([special.logit(rate), special.logit(rho)]),
            method="Nelder-Mead",
            options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000},
        )
        for rho in (0.01, 0.1, 0.4)
    ]
    best = min(fits, key=lambda fit: float(fit.fun))
    gain = -float(best.fun) - binomial
    if gain <= 1e-9:
        return BetaBinomialFit(rate, 0.0, binomial, 0.0)
    p, rho = float(special.expit(best.x[0])), float(special.expit(best.x[1]))
    return BetaBinomialFit(p, rho, -float(best.fun), 2 * gain)


def _betabinom_loglik(clusters: Sequence[Cluster]) -> Callable[[float, float], float]:
    """Return the log likelihood as a function of p and theta = rho / (1 - rho).

    Written as Polya's urn, sums of log(p + i theta), which is exact down to theta = 0 where the
    gamma functions cancel catastrophically.
    """
    x = np.array([c.bad for c in clusters])
    n = np.array([c.sessions for c in clusters])
    i = np.arange(int(n.max()))
    bad = (x[:, None] > i).sum(axis=0)
    good = ((n - x)[:, None] > i).sum(axis=0)
    drawn = (n[:, None] > i).sum(axis=0)
    choose = float(
        (special.gammaln(n + 1) - special.gammaln(x + 1) - special.gammaln(n - x + 1)).sum()
    )

    def loglik(p: float, theta: float) -> float:
        urn = special.xlogy(bad, p + i * theta) + special.xlogy(good, 1 - p + i * theta)
        return choose + float((urn - special.xlogy(drawn, 1 + i * theta)).sum())

    return loglik
