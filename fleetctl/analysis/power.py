"""What a design can see, before any host is touched.

Power of the main test by enumerating both arms' totals; only the spread between runs is
approximated, by a scaled chi-square. It agrees with simulation to 0.01 for independent sessions
and is a few points too careful for correlated ones (docs/results/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

from fleetctl.analysis.exact import total_pmf
from fleetctl.analysis.history import Dispersion
from fleetctl.spec.metric import Metric

MOST_RUNS = 100
NEGLIGIBLE = 1e-9
MOST_TOTALS = 80
COMPLETE_FIX_SHARE = 0.2
RHOS = (0.0, 0.02, 0.05)


class SampleSize(NamedTuple):
    """Sessions per arm for a two-sided test of two rates, independent sessions.

    Attributes:
        fleiss: by the two-proportion formula; None when the rates are equal.
        arcsine: by the arcsine transform, as a check.
    """

    fleiss: float | None
    arcsine: float | None

    def runs(self, run_size: int, design_effect: float) -> int | None:
        """Return runs per arm of `run_size` sessions under a design effect."""
        return None if self.fleiss is None else math.ceil(self.fleiss * design_effect / run_size)


def sample_size_per_arm(
    p1: float, p2: float, alpha: float = 0.05, power: float = 0.8
) -> SampleSize:
    """Return the sessions per arm that see p1 against p2 with the given power.

    Source: Fleiss, Levin & Paik 2003, without continuity correction; Cohen 1988 for the arcsine.
    """
    if p1 == p2:
        return SampleSize(None, None)
    z_alpha, z_beta = float(special.ndtri(1 - alpha / 2)), float(special.ndtri(power))
    mean = (p1 + p2) / 2
    null = z_alpha * math.sqrt(2 * mean * (1 - mean))
    alternative = z_beta * math.sqrt(p1 * (1 - p1) + p2 * (1 - p2))
    effect = 2 * (math.asin(math.sqrt(p1)) - math.asin(math.sqrt(p2)))

    def lacking(shift: float) -> float:
        return power - float(special.ndtr(shift - z_alpha) + special.ndtr(-shift - z_alpha))

    shift = float(optimize.brentq(lacking, 0.0, z_alpha + 10, xtol=1e-12))
    return SampleSize(((null + alternative) / (p1 - p2)) ** 2, 2 * (shift / effect) ** 2)


@dataclass(frozen=True)
class Assumed:
    """What a power statement assumes.

    Attributes:
        sessions: sessions per run.
        rho: correlation inside runs.
        alpha: two-sided level.
        power: what counts as enough.
        history: stored A/A dispersion, which lends degrees of freedom.
        metric: what the rates count.
    """

    sessions: int = 40
    rho: float = 0.0
    alpha: float = 0.05
    power: float = 0.8
    history: Dispersion | None = None
    metric: Metric = "corruption"

    @property
    def design_effect(self) -> float:
        """By how much correlated sessions are worth less than independent ones."""
        return 1 + (self.sessions - 1) * self.rho


def power(p1: float, p2: float, runs: int, assumed: Assumed) -> float:
    """Return the probability that the main test sees p1 against p2 with `runs` runs per arm."""
    d0, phi0 = (assumed.history.df, assumed.history.phi) if assumed.history else (0, 1.0)
    df = 2 * (runs - 1) + d0
    if df == 0:
        return 0.0
    (xb, mass_b), (xc, mass_c) = (_likely_totals(p, runs, assumed) for p in (p1, p2))
    n = runs * assumed.sessions
    # The test rejects where the dispersion phi is below this ratio, and phi is never below 1.
    ratio = _squared_z(xb[:, None], xc[None, :], n) / stats.t.isf(assumed.alpha / 2, df) ** 2
    telling = (runs - 1) * (_varies(xb, n)[:, None] + _varies(xc, n)[None, :])
    spare = (ratio * df - d0 * phi0) / assumed.design_effect
    seen = np.where(ratio > 1, spare > 0, 0.0)
    told = (ratio > 1) & (spare > 0) & (telling > 0)
    seen[told] = special.chdtr(telling[told], spare[told])
    return float(mass_b @ seen @ mass_c)


def _likely_totals(p: float, runs: int, assumed: Assumed) -> tuple[np.ndarray, np.ndarray]:
    """Return totals that can happen, at most 160, and the probability of each."""
    pmf = total_pmf(p, assumed.rho, runs, assumed.sessions)
    likely = np.flatnonzero(pmf > NEGLIGIBLE)
    first, last = int(likely[0]), int(likely[-1]) + 1
    starts = np.arange(first, last, max(1, (last - first) // MOST_TOTALS))
    mass = np.add.reduceat(pmf[first:last], starts - first)
    centre = np.add.reduceat((np.arange(first, last) * pmf[first:last]), starts - first)
    return np.divide(centre, mass, out=starts.astype(float), where=mass > 0), mass


def _varies(x: np.ndarray, n: int) -> np.ndarray:
    return np.asarray((x > 0) & (x < n), dtype=int)


def _squared_z(xb: np.ndarray, xc: np.ndarray, n: int) -> np.ndarray:
    pooled = (xb + xc) / (2 * n)
    variance = pooled * (1 - pooled) * 2 / n
    square = ((xc - xb) / n) ** 2
    return np.asarray(np.divide(square, variance, out=np.zeros_like(variance), where=variance > 0))


def runs_needed(p1: float, p2: float, assumed: Assumed, most: int = MOST_RUNS) -> int | None:
    """Return the runs per arm that reach the wanted power; None when more than `most`."""
    fleiss = sample_size_per_arm(p1, p2, assumed.alpha, assumed.power).runs(
        assumed.sessions, assumed.design_effect
    )
    if fleiss is None or fleiss > most:
        return None
    return _fewest(lambda runs: power(p1, p2, runs, assumed) >= assumed.power, fleiss, most)


def _fewest(enough: Callable[[int], bool], guess: int, most: int) -> int | None:
    """Return the smallest number that is enough, walking from a guess."""
    runs = guess
    while runs > 1 and enough(runs - 1):
        runs -= 1
    while not enough(runs):
        runs += 1
        if runs > most:
            return None
    return runs


def smallest_visible(p1: float, runs: int, assumed: Assumed) -> float | None:
    """Return the highest treatment rate below p1 that this design sees with the wanted power.

    0 says that only a complete fix is seen, None that not even that is.
    """

    def lacking(p2: float) -> float:
        return assumed.power - power(p1, p2, runs, assumed)

    just_above_zero = p1 * 1e-3
    if p1 == 0 or lacking(0.0) > 0:
        return None
    if lacking(just_above_zero) > 0:
        return 0.0
    return float(optimize.brentq(lacking, just_above_zero, p1, xtol=1e-4 * p1))


class PowerRow(NamedTuple):
    """Runs per arm that see one treatment rate; one entry for each correlation of the table."""

    treatment_rate: float
    runs: tuple[int | None, ...]


@dataclass(frozen=True)
class Reach:
    """What the design at hand can do.

    Attributes:
        runs: runs per arm.
        target: treatment rate asked about; None when none was.
        power: probability of seeing it.
        runs_for_target: runs per arm that see it with the wanted power; None when too many.
        smallest_visible: highest treatment rate it sees; 0: only a complete fix; None: not even.
        host_minutes: time on one host for both arms; None without minutes per run.
    """

    runs: int
    target: float | None
    power: float | None
    runs_for_target: int | None
    smallest_visible: float | None
    host_minutes: float | None


@dataclass(frozen=True)
class PowerTable:
    """What `plan` prints before any host is touched.

    Attributes:
        control_rate: the rate the control is expected to have.
        assumed: run size, level, wanted power, history, and the design's own correlation.
        rhos: correlations of the columns.
        rows: runs per arm needed.
        reach: what the design at hand can do.
    """

    control_rate: float
    assumed: Assumed
    rhos: tuple[float, ...]
    rows: tuple[PowerRow, ...]
    reach: Reach

    @property
    def only_a_complete_fix(self) -> bool:
        """Whether the design can confirm a (nearly) complete fix at best, and little else."""
        seen = self.reach.smallest_visible
        return seen is None or seen < COMPLETE_FIX_SHARE * self.control_rate


def power_table(
    control_rate: float,
    assumed: Assumed,
    *,
    runs: int,
    target: float | None = None,
    minutes_per_run: float | None = None,
) -> PowerTable:
    """Return the power of a design with `runs` runs per arm, and what others would need.

    The rows are halving, thirding, a fifth and none of the control's rate, and `target`.
    """
    rates = [control_rate / 2, control_rate / 3, control_rate / 5, 0.0]
    if target is not None and not any(math.isclose(rate, target) for rate in rates):
        rates = sorted([*rates, target], reverse=True)
    rhos = tuple(sorted({*RHOS, assumed.rho}))
    rows = [
        PowerRow(rate, tuple(runs_needed(control_rate, rate, _at(assumed, rho)) for rho in rhos))
        for rate in rates
    ]
    reach = Reach(
        runs=runs,
        target=target,
        power=None if target is None else power(control_rate, target, runs, assumed),
        runs_for_target=None if target is None else runs_needed(control_rate, target, assumed),
        smallest_visible=smallest_visible(control_rate, runs, assumed),
        host_minutes=None if minutes_per_run is None else 2 * runs * minutes_per_run,
    )
    return PowerTable(control_rate, assumed, rhos, tuple(rows), reach)


def _at(assumed: Assumed, rho: float) -> Assumed:
    return replace(assumed, rho=rho)
