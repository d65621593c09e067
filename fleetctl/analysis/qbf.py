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
        size: sessions of a boot for which `phi` stands.
    """

    phi: float
    df: int
    size: float = math.inf

    def of(self, arm: ArmCounts) -> Pooled:
        """Return the dispersion of one arm's total.

        An arm that is one boot, as a control from another day, shows no spread of its own, and
        the luck that its sessions share does not shrink with their number: their correlation, by
        the other arm's boots, makes a larger boot disperse more.
        """
        if len(arm.clusters) != 1 or arm.sessions <= self.size:
            return self
        shared = 1 + (arm.sessions - 1) * correlation(self.phi, [self.size])
        return self._replace(phi=max(self.phi, shared))


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
    return Pooled(max(1.0, x2_sum / df_sum) if df_sum else 1.0, df_sum, _size(arms))


def _size(arms: Sequence[Sequence[Cluster]]) -> float:
    """Return the sessions of a boot, by the arms whose boots were compared with each other."""
    several = [cluster.sessions for clusters in arms if len(clusters) > 1 for cluster in clusters]
    if several:
        return sum(several) / len(several)
    return min((cluster.sessions for clusters in arms for cluster in clusters), default=math.inf)


def qbf_test(
    control: ArmCounts, treatment: ArmCounts, history: Dispersion | None = None
) -> QbfTest:
    """Return t and two-sided p of treatment against control."""
    pooled = pooled_dispersion((control.clusters, treatment.clusters), history)
    nb, nc = control.sessions, treatment.sessions
    if not (nb and nc and pooled.df):
        return QbfTest(None, None, pooled.df, None)
    # 1 unless an arm is a single boot that is larger than the others
    wb, wc = (pooled.phi / pooled.of(arm).phi for arm in (control, treatment))
    p = (control.bad * wb + treatment.bad * wc) / (nb * wb + nc * wc)
    difference = treatment.bad / nc - control.bad / nb
    error = math.sqrt(pooled.phi * p * (1 - p) * (1 / (nb * wb) + 1 / (nc * wc)))
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
    fb, fc = (inflation(pooled.of(arm), (1 + conf) / 2) for arm in (control, treatment))
    return miettinen_nurminen(
        control.bad / fb, control.sessions / fb, treatment.bad / fc, treatment.sessions / fc, conf
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
    f = inflation(pooled.of(arm), (1 + conf) / 2)
    return clopper_pearson(arm.bad / f, arm.sessions / f, conf)


def rate_lower_bound(arm: ArmCounts, pooled: Pooled, conf: float = 0.95) -> float:
    """Return the one-sided lower bound of one arm's rate on effective counts."""
    f = inflation(pooled.of(arm), conf)
    return lower_bound(arm.bad / f, arm.sessions / f, conf)


def rate_upper_bound(
    arm: ArmCounts, pooled: Pooled, rho_of_events: float, conf: float = 0.95
) -> float:
    """Return the one-sided upper bound of one arm's rate.

    Without bad sessions it is the beta-binomial bound, whose correlation `rho_of_events` comes
    from history and from the arms that had events.
    """
    if arm.bad:
        f = inflation(pooled.of(arm), conf)
        return upper_bound(arm.bad / f, arm.sessions / f, conf)
    return zero_event_upper([cluster.sessions for cluster in arm.clusters], rho_of_events, conf)


def correlation(phi: float, run_sizes: Sequence[float]) -> float:
    """Return the correlation inside runs that gives dispersion `phi`: (phi - 1) / (m - 1)."""
    mean = sum(run_sizes) / len(run_sizes) if run_sizes else 0.0
    return min(1.0, max(0.0, phi - 1) / (mean - 1)) if mean > 1 else 0.0
