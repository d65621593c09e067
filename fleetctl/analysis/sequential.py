"""When to look and when to stop: declared looks, e-values for undeclared ones, Wald's test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

PSI = (1.5, 2.5, 4.5)
SMALLEST_SPENDING = 1e-300
LARGEST_Z = 40.0


class SprtDesign(NamedTuple):
    """Wald's sequential test of single sessions; screening only, sessions taken as independent.

    Attributes:
        upper: accept "bad" at or above this log likelihood ratio.
        lower: accept "good" at or below it.
        llr_bad: what a bad session adds; None when a good build has none at all.
        llr_clean: what a clean session adds; None when a bad build has none at all.
        clean_to_accept_good: clean sessions from the start that accept "good".
        asn_good: expected sessions when good (Wald's approximation).
        asn_bad: expected sessions when bad.
    """

    upper: float
    lower: float
    llr_bad: float | None
    llr_clean: float | None
    clean_to_accept_good: int
    asn_good: float
    asn_bad: float | None


def sprt_design(p_good: float, p_bad: float, alpha: float, beta: float) -> SprtDesign:
    """Return the test of p_good against p_bad (p_good < p_bad).

    `alpha` is the error of calling a good build bad, `beta` of calling a bad one good.
    """
    upper, lower = math.log((1 - beta) / alpha), math.log(beta / (1 - alpha))
    llr_bad = math.log(p_bad / p_good) if p_good > 0 else None
    llr_clean = math.log((1 - p_bad) / (1 - p_good)) if p_bad < 1 else None

    def drift(p: float) -> float:
        return p * (llr_bad or 0.0) + (1 - p) * (llr_clean or 0.0)

    return SprtDesign(
        upper=upper,
        lower=lower,
        llr_bad=llr_bad,
        llr_clean=llr_clean,
        # a session that a bad build can't have decides at once
        clean_to_accept_good=max(1, math.ceil(lower / llr_clean - 1e-12)) if llr_clean else 1,
        asn_good=((1 - alpha) * lower + alpha * upper) / drift(p_good) if llr_clean else 1.0,
        asn_bad=None if llr_bad is None else ((1 - beta) * upper + beta * lower) / drift(p_bad),
    )


class Look(NamedTuple):
    """One declared look.

    Attributes:
        fraction: share of the planned information at hand, up to 1.
        z: bound of |z|.
        nominal_p: the two-sided level that p must fall below.
    """

    fraction: float
    z: float
    nominal_p: float


def obf_looks(fractions: Sequence[float], alpha: float = 0.05) -> tuple[Look, ...]:
    """Return the O'Brien-Fleming bounds of looks at the given rising information fractions.

    Source: Lan & DeMets 1983, spending a(t) = 2 - 2 Phi(z_{alpha/2} / sqrt t) on each side;
    bounds by the usual recursion over the density of paths that have not stopped.
    """
    spent_by = [_obf_spending(t, alpha / 2) for t in fractions]
    looks: list[Look] = []
    paths: _Paths | None = None
    before = (0.0, 0.0)
    for fraction, spent in zip(fractions, spent_by, strict=True):
        step = math.sqrt(fraction - before[0])
        z = _bound(paths, step, fraction, max(spent - before[1], SMALLEST_SPENDING))
        looks.append(Look(fraction, z, float(2 * special.ndtr(-z))))
        paths = _surviving(paths, step, z * math.sqrt(fraction))
        before = (fraction, spent)
    return tuple(looks)


def _obf_spending(fraction: float, alpha_side: float) -> float:
    z = -special.ndtri(alpha_side / 2)
    return max(float(2 * special.ndtr(-z / math.sqrt(fraction))), SMALLEST_SPENDING)


class _Paths(NamedTuple):
    """Where the paths that have not stopped are: grid of the score process, mass at each point."""

    at: np.ndarray
    mass: np.ndarray


GRID_POINTS = 400
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(GRID_POINTS)


def _bound(paths: _Paths | None, step: float, fraction: float, spend: float) -> float:
    """Return the z above which the surviving paths leave with probability `spend`."""
    if paths is None:
        return float(-special.ndtri(spend))

    def excess(z: float) -> float:
        leaving = special.ndtr((paths.at - z * math.sqrt(fraction)) / step)
        return float(paths.mass @ leaving) - spend

    return float(optimize.brentq(excess, 0.0, LARGEST_Z, xtol=1e-12))


def _surviving(paths: _Paths | None, step: float, limit: float) -> _Paths:
    """Return the paths inside +-limit after one more step, by Gauss-Legendre quadrature."""
    at = _NODES * limit
    if paths is None:
        density = _normal_density(at / step) / step
    else:
        density = paths.mass @ (_normal_density((at - paths.at[:, None]) / step) / step)
    return _Paths(at, density * _WEIGHTS * limit)


def _normal_density(z: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-z * z / 2) / math.sqrt(2 * math.pi))


def evalue_two_arm(
    control: Sequence[int], treatment: Sequence[int], run_size: int, alternative: Sequence[float]
) -> tuple[float, ...]:
    """Return the running e-value after each pair of runs, for one alternative (control, treatment).

    Valid for independent sessions only. Source: Turner, Ly & Grunwald 2021.
    """
    steps = [
        session_log_evalue(b, c, run_size, alternative)
        for b, c in zip(control, treatment, strict=True)
    ]
    return tuple(math.exp(total) for total in itertools.accumulate(steps))


def session_log_evalue(
    bad_control: int, bad_treatment: int, sessions: int, alternative: Sequence[float]
) -> float:
    """Return the log of one block's e-value; the null rate is the mean of the alternative's."""
    pb, pc = alternative
    null = (pb + pc) / 2
    return float(
        _log_likelihood(bad_control, sessions, pb)
        + _log_likelihood(bad_treatment, sessions, pc)
        - _log_likelihood(bad_control + bad_treatment, 2 * sessions, null)
    )


def _log_likelihood(bad: int, sessions: int, p: float) -> float:
    return float(special.xlogy(bad, p) + special.xlog1py(sessions - bad, -p))


class Block(NamedTuple):
    """Bad sessions of the runs of one block whose arms were drawn at random."""

    control: tuple[int, ...]
    treatment: tuple[int, ...]


def evalue_permuted_blocks(
    blocks: Iterable[Block], psi: Sequence[float] = PSI, *, two_sided: bool = True
) -> float:
    """Return the e-value of all blocks; stop at 1/alpha or more, whenever one looks.

    Valid under any dependence inside runs, because only the random labelling is used. Within
    each psi and direction blocks multiply; those products are averaged. One-sided looks for
    fewer bad sessions in the treatment only.
    """
    directions = (1, -1) if two_sided else (1,)
    blocks = list(blocks)
    logs = [
        sum(_block_log_evalue(block, direction * math.log(p)) for block in blocks)
        for p in psi
        for direction in directions
    ]
    return math.exp(float(special.logsumexp(logs)) - math.log(len(logs)))


def _block_log_evalue(block: Block, log_psi: float) -> float:
    """Return log(psi^(sum in control) / its mean over all labellings of the block)."""
    runs = [*block.control, *block.treatment]
    sums = [sum(chosen) for chosen in itertools.combinations(runs, len(block.control))]
    mean = float(special.logsumexp([log_psi * s for s in sums])) - math.log(len(sums))
    return log_psi * sum(block.control) - mean
