"""The main test: run-level quasi-binomial t-test with floored dispersion ("QBF").

Sessions of one run share a server, so runs (or boots) are the unit of replication. The
dispersion between runs is estimated within arms, pooled with stored A/A runs where there are
any, and never taken below 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from scipy import special, stats

from fleetctl.analysis.counts import ArmCounts, Cluster, Interval, pearson
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.rates import clopper_pearson, lower_bound, upper_bound, zero_event_upper
from fleetctl.analysis.two_arms import miettinen_nurminen


class Pooled(NamedTuple):
    """Dispersion that a comparison assumes, and the degrees of freedom behind it.

    Attributes:
        phi: dispersion, at least 1.
        df: 0 when nothing was replicated and there is no history: then nothing can be tested.
    """

    phi: float
    df: int


class QbfTest(NamedTuple):
    """Outcome of the main test; all None where it can't be made."""

    phi: float | None
    t: float | None
    df: int
    p: float | None


def pooled_dispersion(
    arms: Sequence[Sequence[Cluster]], history: Dispersion | None = None
) -> Pooled:
    """Return max(1, (d0 phi0 + X2) / (d0 + df)) over the arms."""
    x2_sum, df_sum = (history.df * history.phi, history.df) if history else (0.0, 0)
    for clusters in arms:
        x2, df = pearson(clusters)
        x2_sum, df_sum = x2_sum + x2, df_sum + df
    return Pooled(max(1.0, x2_sum / df_sum) if df_sum else 1.0, df_sum)


def qbf_test(
    control: ArmCounts, treatment: ArmCounts, history: Dispersion | None = None
) -> QbfTest:
    """Return t and two-sided p of treatment against control."""
    pooled = pooled_dispersion((control.clusters, treatment.clusters), history)
    nb, nc = control.sessions, treatment.sessions
    if not (nb and nc and pooled.df):
        return QbfTest(None, None, pooled.df, None)
    p = (control.bad + treatment.bad) / (nb + nc)
    difference = treatment.bad / nc - control.bad / nb
    error = math.sqrt(pooled.phi * p * (1 - p) * (1 / nb + 1 / nc))
    t = difference / error if error else 0.0
    return QbfTest(pooled.phi, t, pooled.df, float(2 * stats.t.sf(abs(t), pooled.df)))


def inflation(pooled: Pooled, conf: float) -> float:
    """Return by how much sessions are worth less than independent ones: phi (t_df / z)^2.

    Source: Korn & Graubard 1998; `conf` is the quantile used, such as 0.975 for a 95 % interval.
    Without degrees of freedom it is 1, and the interval must be labelled as such.
    """
    if not pooled.df:
        return pooled.phi
    return float(pooled.phi * (stats.t.ppf(conf, pooled.df) / special.ndtri(conf)) ** 2)


def difference_interval(
    control: ArmCounts, treatment: ArmCounts, pooled: Pooled, conf: float = 0.95
) -> Interval:
    """Return the Miettinen-Nurminen interval of the difference on effective counts."""
    f = inflation(pooled, (1 + conf) / 2)
    return miettinen_nurminen(
        control.bad / f, control.sessions / f, treatment.bad / f, treatment.sessions / f, conf
    )


def rate_interval(
    arm: ArmCounts, pooled: Pooled, rho_of_events: float, conf: float = 0.95
) -> Interval:
    """Return the exact interval of one arm's rate on effective counts.

    Without bad sessions it ends at the bound of `rate_upper_bound`, each side with half of what
    the interval leaves out: an interval and a bound of one arm rest on one model.
    """
    if not arm.bad:
        return Interval(0.0, rate_upper_bound(arm, pooled, rho_of_events, (1 + conf) / 2))
    f = inflation(pooled, (1 + conf) / 2)
    return clopper_pearson(arm.bad / f, arm.sessions / f, conf)


def rate_lower_bound(arm: ArmCounts, pooled: Pooled, conf: float = 0.95) -> float:
    """Return the one-sided lower bound of one arm's rate on effective counts."""
    f = inflation(pooled, conf)
    return lower_bound(arm.bad / f, arm.sessions / f, conf)


def rate_upper_bound(
    arm: ArmCounts, pooled: Pooled, rho_of_events: float, conf: float = 0.95
) -> float:
    """Return the one-sided upper bound of one arm's rate.

    Without bad sessions it is the beta-binomial bound, whose correlation `rho_of_events` comes
    from history and from the arms that had events.
    """
    if arm.bad:
        f = inflation(pooled, conf)
        return upper_bound(arm.bad / f, arm.sessions / f, conf)
    return zero_event_upper([cluster.sessions for cluster in arm.clusters], rho_of_events, conf)


def correlation(phi: float, run_sizes: Sequence[int]) -> float:
    """Return the correlation inside runs that gives dispersion `phi`: (phi - 1) / (m - 1)."""
    mean = sum(run_sizes) / len(run_sizes) if run_sizes else 0.0
    return min(1.0, max(0.0, phi - 1) / (mean - 1)) if mean > 1 else 0.0
