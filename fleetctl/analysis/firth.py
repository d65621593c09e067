"""Firth's logit of counts: finite also where a cell has no bad session, or only bad ones.

Source: Firth 1993; p from penalised likelihood ratios, intervals from profile likelihood.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from firthmodels import FirthLogisticRegression

from fleetctl.analysis.counts import Interval
from fleetctl.errors import InputError

NEXT_TO_NOTHING = 1e-10
# a run tells how boots spread when its variance is at least that share of the largest
_TELLING = 0.25
# 25, the library's own, is too few for a bound far out: many clean cells beside a few bad ones
_MOST_STEPS = 200
# the library's own 1e-4 gives four digits; 1e-8 fails on one ordinary table in sixty
_GTOLS = (1e-6, 1e-5, 1e-4)


class FirthFit(NamedTuple):
    """Coefficients of a Firth logit; the intercept comes last.

    Attributes:
        coefficients: log odds, of all columns.
        p: penalised likelihood-ratio p of the columns that were asked for.
        intervals: profile-likelihood 95 % intervals of the same.
    """

    coefficients: tuple[float, ...]
    p: tuple[float, ...]
    intervals: tuple[Interval, ...]


def firth_fit(
    design: Sequence[Sequence[float]],
    bad: Sequence[int],
    sessions: Sequence[int],
    columns: Sequence[int] | None = None,
) -> FirthFit:
    """Return the Firth logit of counts on a design without intercept column.

    Args:
        design: a row for each run.
        bad: sessions of each run.
        sessions: of each run, all of them.
        columns: whose p and intervals are wanted, in that order; by default all, the intercept
            last.

    Raises:
        InputError: columns can't be told apart, or the fit did not converge.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that failed is told by its NaN below
        model = _fitted(design, bad, sessions)
        asked = list(range(len(model.coef_) + 1) if columns is None else columns)
        p = _ratio_p(model, asked)
        ends = model.conf_int(method="pl", max_iter=_MOST_STEPS, features=asked)
        intervals = [ends[column] for column in asked]
    _check(model, [*p, *np.ravel(intervals)])
    return FirthFit(
        tuple(float(c) for c in (*model.coef_, model.intercept_)),
        p,
        tuple(Interval(float(low), float(high)) for low, high in intervals),
    )


def firth_p(
    design: Sequence[Sequence[float]],
    bad: Sequence[int],
    sessions: Sequence[int],
    columns: Sequence[int],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the coefficients of a Firth logit, and the p of some columns only; see `firth_fit`.

    Raises:
        InputError: columns can't be told apart, or the fit did not converge.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _fitted(design, bad, sessions)
        found = _ratio_p(model, columns)
    _check(model, found)
    return tuple(float(c) for c in (*model.coef_, model.intercept_)), found


class Spread(NamedTuple):
    """How runs spread around a fit: Pearson's statistic and the degrees of freedom behind it."""

    x2: float
    df: int


def spread_of_runs(
    coefficients: Sequence[float],
    design: Sequence[Sequence[float]],
    bad: Sequence[int],
    sessions: Sequence[int],
) -> Spread:
    """Return how the runs that can show a spread do spread around a fit.

    A run of a cell in which nothing is ever bad has a residual near 0 whatever the sessions of a
    boot share. Counted in, it would say that boots are alike and thin out the spread of the cells
    that have the fault; so only runs count whose variance by the fit is a quarter of the largest
    or more. Each has 1 - h degrees of freedom, h its leverage.

    Source: McCullagh & Nelder 1989, ch. 12.5, for the variance of a Pearson residual.
    """
    x = np.column_stack([np.asarray(design, dtype=float).reshape(len(bad), -1), np.ones(len(bad))])
    n = np.asarray(sessions, dtype=float)
    rate = 1 / (1 + np.exp(-(x @ np.asarray(coefficients))))
    variance = n * rate * (1 - rate)
    leverage = variance * np.einsum("ij,jk,ik->i", x, np.linalg.pinv(x.T * variance @ x), x)
    telling = variance >= _TELLING * variance.max()
    residual = (np.asarray(bad)[telling] - (n * rate)[telling]) ** 2 / variance[telling]
    return Spread(float(residual.sum()), max(int((1 - leverage[telling]).sum() + 1e-6), 0))


def _ratio_p(model: FirthLogisticRegression, columns: Sequence[int]) -> tuple[float, ...]:
    """Return likelihood-ratio p of columns; the one after the last coefficient is the intercept.

    Started from the whole model's covariance, one ordinary table in a hundred does not converge;
    started from nothing, it does. A few need a looser gradient as well: the likelihood is flat
    there, its ratio keeps eight digits.
    """
    model.lrt(features=list(columns))
    found = {column: float(model.lrt_pvalues_[column]) for column in columns}
    for gtol in _GTOLS:
        stuck = [column for column, p in found.items() if not np.isfinite(p)]
        if not stuck:
            break
        model.gtol = gtol
        model.lrt(features=stuck, warm_start=False)
        found |= {column: float(model.lrt_pvalues_[column]) for column in stuck}
    return tuple(found[column] for column in columns)


def _fitted(
    design: Sequence[Sequence[float]], bad: Sequence[int], sessions: Sequence[int]
) -> FirthLogisticRegression:
    x = np.asarray(design, dtype=float).reshape(len(bad), -1)
    seen = np.asarray(sessions) > 0
    full = np.column_stack([x, np.ones(len(bad))])[seen]
    if np.linalg.matrix_rank(full) < full.shape[1]:
        raise _unusable("some effects can't be told apart", "two of them vary only together")
    weights = np.concatenate([bad, np.asarray(sessions) - np.asarray(bad)]).astype(float)
    # The library wants both outcomes to occur; Firth's estimate exists without, next to this one.
    weights = np.where(np.concatenate([seen, seen]), np.maximum(weights, NEXT_TO_NOTHING), 0.0)
    outcome = np.repeat([1, 0], len(bad))
    # By itself it takes numba where that happens to be installed, and compiles longer than it fits.
    model = FirthLogisticRegression(gtol=_GTOLS[0], max_iter=_MOST_STEPS, backend="numpy")
    return model.fit(np.vstack([x, x]), outcome, sample_weight=weights)


def _check(model: FirthLogisticRegression, values: Sequence[float]) -> None:
    finite = np.all(np.isfinite([*model.coef_, model.intercept_, *values]))
    if not (model.converged_ and finite):
        raise _unusable("the model of the matrix did not converge", "the fit has no finite answer")


def _unusable(what: str, why: str) -> InputError:
    return InputError(
        what, why=why, next_step="add the missing cells or runs, or declare fewer interactions"
    )
