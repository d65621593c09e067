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
# 25, the library's own, is too few for a bound far out: many clean cells beside a few bad ones
_MOST_STEPS = 200
# the library's own 1e-4 gives four digits; 1e-8 fails on one ordinary table in sixty
_GTOLS = (1e-6, 1e-5, 1e-4)


class FirthFit(NamedTuple):
    """Coefficients of a Firth logit; the intercept comes last.

    Attributes:
        coefficients: log odds.
        p: penalised likelihood-ratio p.
        intervals: profile-likelihood 95 % intervals.
    """

    coefficients: tuple[float, ...]
    p: tuple[float, ...]
    intervals: tuple[Interval, ...]


def firth_fit(
    design: Sequence[Sequence[float]], bad: Sequence[int], sessions: Sequence[int]
) -> FirthFit:
    """Return the Firth logit of counts on a design without intercept column.

    Raises:
        InputError: columns can't be told apart, or the fit did not converge.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that failed is told by its NaN below
        model = _fitted(design, bad, sessions)
        p = _ratio_p(model, range(len(model.coef_) + 1))
        intervals = model.conf_int(method="pl", max_iter=_MOST_STEPS)
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
    model = FirthLogisticRegression(gtol=_GTOLS[0], max_iter=_MOST_STEPS)
    return model.fit(np.vstack([x, x]), outcome, sample_weight=weights)


def _check(model: FirthLogisticRegression, values: Sequence[float]) -> None:
    finite = np.all(np.isfinite([*model.coef_, model.intercept_, *values]))
    if not (model.converged_ and finite):
        raise _unusable("the model of the matrix did not converge", "the fit has no finite answer")


def _unusable(what: str, why: str) -> InputError:
    return InputError(
        what, why=why, next_step="add the missing cells or runs, or declare fewer interactions"
    )
