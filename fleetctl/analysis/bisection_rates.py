"""What is believed about rates nobody knows: a grid of rates and of correlations inside runs.

Runs are beta-binomial: mean rate p, correlation rho between the sessions of one run. Sums over a
grid stand for the integrals; the grid is even in arcsin(sqrt p), where every rate is resolved
alike however small it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from fleetctl.analysis.history import Dispersion

GRID_POINTS = 72
RHOS = (0.0, 0.02, 0.05, 0.10, 0.20, 0.40, 0.70, 0.95)
"""Correlations that runs of one service were seen to have, or could have; 0 is independence.

A fault that comes with every second boot at 30 % has 0.18, at 80 % it has 0.67; one that a boot
has in all of its sessions or in none has 1.
"""

_SHARES = (1.0, 1.0, 1.0, 1.0, 0.4, 0.15, 0.04, 0.01)
RHO_PRIOR = tuple(share / sum(_SHARES) for share in _SHARES)
"""What is believed of each beforehand: boots that draw lots are rare.

Alike weights would need more than 60 clean boots to say that nothing changed.
"""


class Beta(NamedTuple):
    """A Beta prior of a rate: as if `alpha` bad and `beta` clean sessions had been seen."""

    alpha: float
    beta: float


RARE = Beta(0.5, 9.5)
"""A good rate before the first run: 5 % on average, and most likely next to nothing."""

OFTEN = Beta(0.5, 2.0)
"""A bad rate before the first run: 20 % on average, and anything is possible."""

_TOLD_SESSIONS = 100


def told(rate: float) -> Beta:
    """Return the prior of a rate that somebody measured before: as good as 100 sessions."""
    return Beta(max(_TOLD_SESSIONS * rate, 0.5), max(_TOLD_SESSIONS * (1 - rate), 0.5))


@dataclass(frozen=True)
class RatePriors:
    """What is believed before the first run.

    Attributes:
        good: rate without the fault.
        bad: rate with it.
        smallest: a smaller difference between the two counts as none at all; without such a
            bound no number of runs could ever say that nothing changed.
        rho_weights: of `RHOS`.
    """

    good: Beta = RARE
    bad: Beta = OFTEN
    smallest: float = 0.05
    rho_weights: tuple[float, ...] = RHO_PRIOR


def rho_weights(history: Dispersion | None, sessions: int) -> tuple[float, ...]:
    """Return what A/A runs of `sessions` sessions say of each correlation; the prior without any.

    Pearson's statistic of the history is chi-square, scaled by 1 + (sessions - 1) rho.
    """
    if history is None or history.df == 0:
        return RHO_PRIOR
    scale = 1 + (sessions - 1) * np.array(RHOS)
    x2 = history.phi * history.df
    # the tiny summand keeps a history that fits no correlation from leaving none at all
    density = np.array(RHO_PRIOR) * (stats.chi2.pdf(x2 / scale, history.df) / scale + 1e-9)
    return tuple(float(weight) for weight in density / density.sum())


@dataclass(frozen=True)
class RateModel:
    """The grid with its prior weights.

    Attributes:
        good: prior of the good rate, [rate].
        bad: prior of the bad rate, [rate].
        pair: prior of (lower, higher), zero where they are too close, [rate, rate].
        rho: prior of the correlation, [rho].
    """

    good: np.ndarray
    bad: np.ndarray
    pair: np.ndarray
    rho: np.ndarray

    @property
    def either(self) -> np.ndarray:
        """Prior of one rate that holds everywhere: the mean of both, [rate]."""
        return np.asarray((self.good + self.bad) / 2)


@lru_cache(maxsize=16)
def model_of(priors: RatePriors) -> RateModel:
    """Return the grid for these priors."""
    good, bad = _weights(priors.good), _weights(priors.bad)
    apart = rates()[None, :] - rates()[:, None] >= max(priors.smallest, 1e-9)
    pair = np.outer(good, bad) * apart
    return RateModel(good, bad, pair / pair.sum(), np.array(priors.rho_weights))


def rates() -> np.ndarray:
    """Return the rates of the grid, rising, [rate]."""
    angles = (np.arange(GRID_POINTS) + 0.5) * (np.pi / 2 / GRID_POINTS)
    return np.asarray(np.sin(angles) ** 2)


def _weights(prior: Beta) -> np.ndarray:
    """Return the prior's mass of each cell of the grid."""
    edges = np.sin(np.arange(GRID_POINTS + 1) * (np.pi / 2 / GRID_POINTS)) ** 2
    mass: np.ndarray = np.diff(special.betainc(prior.alpha, prior.beta, edges))
    return np.asarray(mass / mass.sum())


@lru_cache(maxsize=16)
def log_pmf(sessions: int) -> np.ndarray:
    """Return log P(bad | rate, rho) of a run, [bad 0..sessions, rho, rate].

    Source: the beta-binomial as Polya's urn, Beta(p (1/rho - 1), (1 - p)(1/rho - 1)).
    """
    bad = np.arange(sessions + 1)[:, None]
    p = rates()
    layers = []
    for rho in RHOS:
        if rho == 0:
            layers.append(stats.binom.logpmf(bad, sessions, p))
        else:
            scale = 1 / rho - 1
            layers.append(stats.betabinom.logpmf(bad, sessions, p * scale, (1 - p) * scale))
    return np.stack(layers, axis=1)
