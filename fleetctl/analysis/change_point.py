"""Which of several ordered patches brought the fault: a posterior that noisy runs sharpen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from fleetctl.errors import InputError


@dataclass(frozen=True)
class Rates:
    """How builds behave before and after the change.

    Attributes:
        p_good: rate of bad sessions without the fault.
        p_bad: rate with it.
        rho: correlation inside runs, from A/A history; 0 only when it was shown to be about 0.
    """

    p_good: float
    p_bad: float
    rho: float = 0.0

    def log_likelihood(self, bad: int, sessions: int) -> tuple[float, float]:
        """Return the log likelihood of one run under the good and under the bad rate."""
        return (
            _log_pmf(bad, sessions, self.p_good, self.rho),
            _log_pmf(bad, sessions, self.p_bad, self.rho),
        )


def _log_pmf(bad: int, sessions: int, p: float, rho: float) -> float:
    if rho <= 0 or p in (0, 1):
        return float(stats.binom.logpmf(bad, sessions, p))
    scale = 1 / rho - 1
    return float(stats.betabinom.logpmf(bad, sessions, p * scale, (1 - p) * scale))


@dataclass(frozen=True)
class ChangePoint:
    """What is known about the culprit among ordered patches 0 .. N-1.

    Attributes:
        mass: probability of each patch to be the first bad one.
        rates: how builds behave.
    """

    mass: tuple[float, ...]
    rates: Rates

    def after(self, tested: int, bad: int, sessions: int) -> ChangePoint:
        """Return the posterior after a run of the build with patches 0 .. `tested`.

        Raises:
            InputError: the outcome is impossible under both rates, or no such patch exists.
        """
        if not 0 <= tested < len(self.mass):
            raise InputError(
                f"patch {tested} was tested",
                why=f"there are {len(self.mass)} patches, counted from 0",
                next_step="give the index of the last patch in the tested build",
            )
        good_log, bad_log = self.rates.log_likelihood(bad, sessions)
        logs = np.full(len(self.mass), good_log)
        logs[: tested + 1] = bad_log
        with np.errstate(divide="ignore"):
            logs += np.log(self.mass)
        total = special.logsumexp(logs)
        if not math.isfinite(total):
            raise InputError(
                f"{bad} bad of {sessions} sessions can't happen",
                why="neither the good nor the bad rate allows it",
                next_step="give a good rate above 0, such as the control's upper bound",
            )
        return replace(self, mass=tuple(float(m) for m in np.exp(logs - total)))

    def next_test(self) -> int:
        """Return the build to run next: the posterior median, where a run tells most."""
        cumulative = np.cumsum(self.mass)
        last_useful = max(len(self.mass) - 2, 0)
        return min(int(np.argmin(np.abs(cumulative - 0.5))), last_useful)

    def culprit(self, confidence: float = 0.95) -> int | None:
        """Return the patch that holds the needed mass; None while undecided."""
        best = int(np.argmax(self.mass))
        return best if self.mass[best] >= confidence else None


def uniform(patches: int, rates: Rates) -> ChangePoint:
    """Return the state before the first run."""
    return ChangePoint((1 / patches,) * patches, rates)


class Information(NamedTuple):
    """What one run tells about good or bad.

    Attributes:
        bits: mutual information at even odds.
        runs_per_doubling: expected runs, at least, for each halving of the candidates.
    """

    bits: float
    runs_per_doubling: float | None

    def min_runs(self, patches: int) -> float | None:
        """Return the expected runs, at least, that single out one of `patches`."""
        if self.runs_per_doubling is None:
            return None
        return math.log2(patches) * self.runs_per_doubling


def information_per_run(rates: Rates, sessions: int) -> Information:
    """Return the information of a run of `sessions` sessions."""
    logs = np.array([rates.log_likelihood(bad, sessions) for bad in range(sessions + 1)])
    pmf = np.exp(logs)
    mixture = pmf.mean(axis=1, keepdims=True)
    bits = float((special.rel_entr(pmf, mixture).sum(axis=0) / math.log(2)).mean())
    return Information(bits, 1 / bits if bits > 1e-12 else None)


class ErrorBudget(NamedTuple):
    """Error that each test of a set minimisation may make.

    Attributes:
        error_per_test: delta / tests.
        clean_to_accept: clean sessions that let a subset pass as harmless.
    """

    error_per_test: float
    clean_to_accept: int


def minimise_budget(rates: Rates, tests: int = 60, delta: float = 0.05) -> ErrorBudget:
    """Return the budget with which `tests` tests together err with probability `delta` at most.

    A minimisation over a set has no posterior; one wrong test ruins it, so each gets delta / T.
    """
    error = delta / tests
    llr_clean = math.log1p(-rates.p_bad) - math.log1p(-rates.p_good)
    return ErrorBudget(error, math.ceil(math.log(error / (1 - error)) / llr_clean))
