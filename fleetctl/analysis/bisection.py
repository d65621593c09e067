"""Which of several ordered changes moved the rate, when no rate is known and every run is noisy.

Point k is the service with the first k changes; point 0 has none, point N all. The rate is p0 up
to some point and p1 from the next on: that one step is the *monotone assumption*, without which no
bisection makes sense. Runs are beta-binomial with unknown p0, p1 and correlation inside runs; all
three are summed out (`bisection_rates`), so no rate has to be known beforehand.

Besides "change c raised it" two other worlds are weighed: "nothing changed" and "some change
lowered it" (the ends are reversed). The next run is made where it tells most about which world
holds, in expected bits.

Sources: Horstein 1963 and Waeber, Frazier & Henderson 2013 for probabilistic bisection; Beta
priors of both rates and the choice by expected entropy as in git_bayesect; the mutual information
is that of a run's count and the world (Lindley 1956).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy import special

from fleetctl.analysis.bisection_rates import RateModel, RatePriors, log_pmf, model_of, rates
from fleetctl.errors import InputError


class Seen(NamedTuple):
    """One run: at which point, and what came of it."""

    point: int
    bad: int
    sessions: int


@dataclass(frozen=True)
class Worlds:
    """What is believed before the first run about what the changes do.

    Attributes:
        none: probability that no change moves the rate.
        lowered: probability that one lowers it.
        rates: about the rates.
    """

    none: float = 0.05
    lowered: float = 0.05
    rates: RatePriors = field(default_factory=RatePriors)


@dataclass(frozen=True)
class Belief:
    """What the runs so far say.

    Attributes:
        raised: probability that change c = index + 1 raised the rate.
        lowered: the same for lowering it.
        none: probability that nothing changed.
        good_rate: expected rate before the change, given that one raised it.
        bad_rate: expected rate from it on, likewise.
    """

    raised: tuple[float, ...]
    lowered: tuple[float, ...]
    none: float
    good_rate: float
    bad_rate: float

    @property
    def best(self) -> int:
        """The likeliest change, counted from 1."""
        return int(np.argmax(self.raised)) + 1

    @property
    def best_mass(self) -> float:
        """Its probability."""
        return max(self.raised)

    @property
    def reversed_mass(self) -> float:
        """Probability that some change lowered the rate."""
        return sum(self.lowered)

    def credible(self, share: float) -> tuple[int, ...]:
        """Return the fewest changes that hold `share` of what speaks for a raised rate, rising."""
        order = np.argsort(self.raised)[::-1]
        held = np.cumsum(np.array(self.raised)[order])
        count = int(np.searchsorted(held, share * held[-1] - 1e-12)) + 1
        return tuple(sorted(int(index) + 1 for index in order[:count]))


@dataclass(frozen=True)
class _Posterior:
    """The posterior over worlds, with what each predicts of a run on either side of its step.

    Attributes:
        mass: of every world: raised 1..N, lowered 1..N, none; [world].
        before: weight of (rho, rate) before the step, given the world, [world, rho, rate].
        after: the same from the step on.
    """

    mass: np.ndarray
    before: np.ndarray
    after: np.ndarray


def log_likelihood(runs: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return the log likelihood of runs, given as (bad, sessions), at each (rho, rate)."""
    logs = np.zeros(log_pmf(1).shape[1:])
    for bad, sessions in runs:
        logs += log_pmf(sessions)[bad]
    return logs


def believe(changes: int, seen: Sequence[Seen], worlds: Worlds) -> Belief:
    """Return what the runs so far say about `changes` ordered changes.

    Raises:
        InputError: a run is of a point that does not exist, or there is no change at all.
    """
    posterior = _posterior(changes, seen, worlds)
    mass = posterior.mass
    raised = mass[:changes] / max(mass[:changes].sum(), 1e-300)
    good = np.einsum("w,wrg,g->", raised, posterior.before[:changes], rates())
    bad = np.einsum("w,wrg,g->", raised, posterior.after[:changes], rates())
    return Belief(
        raised=tuple(float(m) for m in mass[:changes]),
        lowered=tuple(float(m) for m in mass[changes : 2 * changes]),
        none=float(mass[-1]),
        good_rate=float(good),
        bad_rate=float(bad),
    )


def expected_bits(changes: int, seen: Sequence[Seen], worlds: Worlds, sessions: int) -> np.ndarray:
    """Return what one more run at each point would tell about the world, in bits, [point].

    Args:
        changes: number of ordered changes.
        seen: the runs so far.
        worlds: what was believed before them.
        sessions: size of the run to be made.
    """
    posterior = _posterior(changes, seen, worlds)
    pmf = np.exp(log_pmf(sessions))
    before = np.einsum("wrg,xrg->wx", posterior.before, pmf)
    after = np.einsum("wrg,xrg->wx", posterior.after, pmf)
    weighed = posterior.mass[:, None]
    mixture = _by_point(changes, weighed * before, weighed * after)
    own = _by_point(changes, weighed * _entropy(before), weighed * _entropy(after))
    told = (_entropy(mixture) - own)[:, 0] / np.log(2)
    return np.asarray(np.maximum(told, 0.0))


def _by_point(changes: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the sum over worlds at each point: worlds whose step has come count `after`.

    Args:
        changes: number of changes.
        before: [world, anything].
        after: likewise.
    """
    width = before.shape[1]
    total = np.tile(before[-1], (changes + 1, 1))
    for first in (0, changes):
        stepped = np.vstack([np.zeros(width), np.cumsum(after[first : first + changes], axis=0)])
        ahead = before[first : first + changes]
        rest = np.vstack([np.cumsum(ahead[::-1], axis=0)[::-1], np.zeros(width)])
        total = total + stepped + rest
    return np.asarray(total)


def _entropy(pmf: np.ndarray) -> np.ndarray:
    return np.asarray(special.entr(pmf).sum(axis=1, keepdims=True))


def _posterior(changes: int, seen: Sequence[Seen], worlds: Worlds) -> _Posterior:
    if changes < 1:
        raise InputError(
            "there is no change to find",
            why="the list of changes is empty",
            next_step="name at least one change",
        )
    model = model_of(worlds.rates)
    logs = _logs_by_point(changes, seen)
    before = np.cumsum(logs, axis=0)[:-1]
    total = logs.sum(axis=0)
    raised = _stepped(before, total - before, model, model.pair)
    lowered = _stepped(before, total - before, model, model.pair.T)
    same = _unstepped(total, model)
    evidence = np.concatenate([raised[0], lowered[0], same[0]])
    prior = np.concatenate(
        [
            np.full(changes, (1 - worlds.none - worlds.lowered) / changes),
            np.full(changes, worlds.lowered / changes),
            [worlds.none],
        ]
    )
    mass = special.softmax(evidence + np.log(prior))
    return _Posterior(
        mass,
        np.concatenate([raised[1], lowered[1], same[1]]),
        np.concatenate([raised[2], lowered[2], same[1]]),
    )


def _logs_by_point(changes: int, seen: Sequence[Seen]) -> np.ndarray:
    """Return the log likelihood of each point's runs, [point, rho, rate]."""
    logs = np.zeros((changes + 1, *log_pmf(1).shape[1:]))
    for run in seen:
        if not 0 <= run.point <= changes:
            raise InputError(
                f"point {run.point} was measured",
                why=f"there are {changes} changes, so points 0 to {changes}",
                next_step="give the number of changes the measured build has",
            )
        logs[run.point] += log_pmf(run.sessions)[run.bad]
    return logs


def _stepped(
    before: np.ndarray, after: np.ndarray, model: RateModel, pair: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the log evidence of a step at each change, and the rates it believes in.

    Args:
        before: log likelihood of the runs before the step, [change, rho, rate].
        after: of those from it on, likewise.
        model: the grid.
        pair: prior of (rate before, rate after), [rate, rate].

    Returns:
        log evidence, [change]; weights of (rho, rate) before and after, each [change, rho, rate].
    """
    top_before = before.max(axis=(1, 2), keepdims=True)
    top_after = after.max(axis=(1, 2), keepdims=True)
    left, right = np.exp(before - top_before), np.exp(after - top_after)
    rho = model.rho[:, None]
    weights_before = rho * left * (right @ pair.T)
    weights_after = rho * right * (left @ pair)
    # never exactly zero: an impossible world still sums to one and has no mass
    evidence = weights_before.sum(axis=(1, 2), keepdims=True) + 1e-300
    logs = (np.log(evidence) + top_before + top_after)[:, 0, 0]
    return logs, weights_before / evidence, weights_after / evidence


def _unstepped(total: np.ndarray, model: RateModel) -> tuple[np.ndarray, np.ndarray]:
    """Return log evidence and rates of a world without a step, as `_stepped`."""
    top = total.max()
    weights = model.rho[:, None] * model.either * np.exp(total - top)
    evidence = weights.sum()
    return np.array([np.log(evidence) + top]), (weights / evidence)[None]


def end_rates(logs: np.ndarray, worlds: Worlds, direction: int) -> np.ndarray:
    """Return what is believed of two rates, given that they differ.

    Args:
        logs: log likelihood of the runs at either rate, [2, rho, rate].
        worlds: what was believed before them.
        direction: +1 when the second rate is the higher one, -1 when it is the lower one.

    Returns:
        weights of (rho, rate) of the first and of the second, [2, rho, rate].
    """
    model = model_of(worlds.rates)
    pair = model.pair if direction > 0 else model.pair.T
    _, before, after = _stepped(logs[:1], logs[1:], model, pair)
    return np.concatenate([before, after])
