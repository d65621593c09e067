"""Which factor of a matrix matters: Firth logit on run counts, or exact tables when few are bad."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from firthmodels import FirthLogisticRegression
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fleetctl.analysis.counts import ArmCounts, Interval
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.strata import TwoByTwo, cmh, exact_conditional_p
from fleetctl.errors import InputError

FEWEST_BAD_FOR_A_MODEL = 10
NEXT_TO_NOTHING = 1e-10


@dataclass(frozen=True)
class Factor:
    """One thing that varies over the cells.

    Attributes:
        name: how it is called.
        levels: its levels; the first is the baseline the others are compared with.
        observer: it only looks, so an effect of it taints what was measured with it.
    """

    name: str
    levels: tuple[str, ...]
    observer: bool = False


@dataclass(frozen=True)
class MatrixCell:
    """One cell's runs on one host.

    Attributes:
        levels: level of each factor.
        counts: the runs.
        block: host; hosts enter the model as blocks.
    """

    levels: Mapping[str, str]
    counts: ArmCounts
    block: str = ""


@dataclass(frozen=True)
class Effect:
    """What one level (or one pair of levels) does.

    Attributes:
        term: factor and level, two of them for an interaction.
        log_odds: Firth coefficient; None from exact tables.
        interval: profile-likelihood 95 % interval of it, scaled by phi; None from exact tables.
        p: two-sided; None where the data can't tell anything.
        p_holm: adjusted for all effects of the matrix.
        baseline_rate: pooled rate of the cells at the baseline level.
        level_rate: pooled rate of the cells at this level.
        observer: the factor only looks.
        p_bh: adjusted for the share of false discoveries, for screening; confirm what survives.
        cmh: Cochran-Mantel-Haenszel over the same strata, from exact tables only; its odds ratio
            is level over baseline.
    """

    term: tuple[tuple[str, str], ...]
    log_odds: float | None
    interval: Interval | None
    p: float | None
    p_holm: float | None
    baseline_rate: float | None
    level_rate: float | None
    observer: bool
    p_bh: float | None = None
    cmh: CmhOdds | None = None


class CmhOdds(NamedTuple):
    """A stratified comparison with the baseline's level.

    Attributes:
        p: of no difference in any stratum; None where no stratum tells anything.
        odds_ratio: common to all strata, level over baseline; None where it is infinite.
    """

    p: float | None
    odds_ratio: float | None


@dataclass(frozen=True)
class MatrixEffects:
    """All effects of a matrix.

    Attributes:
        method: "firth" or "stratified exact".
        phi: dispersion that the tests were scaled by; 1 for exact tables.
        df: degrees of freedom behind it.
        effects: one for each level and declared interaction.
        blocked_by: what the blocks of the cells are.
    """

    method: str
    phi: float
    df: int
    effects: tuple[Effect, ...]
    blocked_by: str = "host"


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
    x = np.asarray(design, dtype=float).reshape(len(bad), -1)
    seen = np.asarray(sessions) > 0
    full = np.column_stack([x, np.ones(len(bad))])[seen]
    if np.linalg.matrix_rank(full) < full.shape[1]:
        raise _unusable("some effects can't be told apart", "two of them vary only together")
    weights = np.concatenate([bad, np.asarray(sessions) - np.asarray(bad)]).astype(float)
    # The library wants both outcomes to occur; Firth's estimate exists without, next to this one.
    weights = np.where(np.concatenate([seen, seen]), np.maximum(weights, NEXT_TO_NOTHING), 0.0)
    outcome = np.repeat([1, 0], len(bad))
    # The default gtol 1e-4 gives four digits; 1e-8 fails on one ordinary table in sixty.
    model = FirthLogisticRegression(gtol=1e-6, max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that failed is told by its NaN below
        model.fit(np.vstack([x, x]), outcome, sample_weight=weights).lrt()
        intervals = model.conf_int(method="pl")
    values = [*model.coef_, model.intercept_, *model.lrt_pvalues_, *np.ravel(intervals)]
    if not (model.converged_ and np.all(np.isfinite(values))):
        raise _unusable("the model of the matrix did not converge", "the fit has no finite answer")
    return FirthFit(
        tuple(float(c) for c in (*model.coef_, model.intercept_)),
        tuple(float(p) for p in model.lrt_pvalues_),
        tuple(Interval(float(low), float(high)) for low, high in intervals),
    )


def _unusable(what: str, why: str) -> InputError:
    return InputError(
        what, why=why, next_step="add the missing cells or runs, or declare fewer interactions"
    )


def matrix_effects(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    interactions: Sequence[tuple[str, str]] = (),
    history: Dispersion | None = None,
) -> MatrixEffects:
    """Return the effect of each factor level and declared interaction, Holm-adjusted.

    With fewer than ten bad sessions no model is fitted: exact tables, stratified by the other
    factors and the host, are reported instead, for main effects only.

    Raises:
        InputError: effects can't be told apart, or the model did not converge.
    """
    bad = sum(cell.counts.bad for cell in cells)
    if bad < FEWEST_BAD_FOR_A_MODEL:
        effects = [_exact_effect(cells, factors, term) for term in _main_terms(factors)]
        return MatrixEffects("stratified exact", 1.0, 0, _adjusted(effects))
    return _firth_effects(factors, cells, interactions, history)


Term = tuple[tuple[str, str], ...]


def _main_terms(factors: Sequence[Factor]) -> list[Term]:
    return [((factor.name, level),) for factor in factors for level in factor.levels[1:]]


def _terms(factors: Sequence[Factor], interactions: Sequence[tuple[str, str]]) -> list[Term]:
    by_name = {factor.name: factor for factor in factors}
    pairs: list[Term] = [
        ((a, level_a), (b, level_b))
        for a, b in interactions
        for level_a in by_name[a].levels[1:]
        for level_b in by_name[b].levels[1:]
    ]
    return _main_terms(factors) + pairs


def _at(cell: MatrixCell, term: Term) -> bool:
    return all(cell.levels[factor] == level for factor, level in term)


def _coded(cell: MatrixCell, term: Term, share: Mapping[str, float]) -> float:
    """Return the column of a term: 1 at its level, less the share of cells there.

    Centred, a main effect is the average over the other factor's levels even when their
    interaction is in the model.
    """
    return math.prod((cell.levels[name] == level) - share[name] for name, level in term)


def _firth_effects(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    interactions: Sequence[tuple[str, str]],
    history: Dispersion | None,
) -> MatrixEffects:
    terms = _terms(factors, interactions)
    hosts = sorted({cell.block for cell in cells})[1:]
    share = {factor.name: 1 / len(factor.levels) for factor in factors}
    rows = [(cell, run) for cell in cells for run in cell.counts.clusters]
    design = [
        [*(_coded(cell, term, share) for term in terms), *(float(cell.block == h) for h in hosts)]
        for cell, _ in rows
    ]
    bad, sessions = [run.bad for _, run in rows], [run.sessions for _, run in rows]
    fit = firth_fit(design, bad, sessions)
    phi, df = _residual_dispersion(fit, np.array(design), bad, sessions, history)
    effects = [
        Effect(
            term=term,
            log_odds=fit.coefficients[i],
            interval=_scaled(fit.coefficients[i], fit.intervals[i], phi),
            p=_scaled_p(fit.p[i], phi, df),
            p_holm=None,
            observer=_is_observer(factors, term),
            baseline_rate=_rate_at(cells, _baseline_of(factors, term)),
            level_rate=_rate_at(cells, term),
        )
        for i, term in enumerate(terms)
    ]
    return MatrixEffects("firth", phi, df, _adjusted(effects))


def _residual_dispersion(
    fit: FirthFit,
    design: np.ndarray,
    bad: Sequence[int],
    sessions: Sequence[int],
    history: Dispersion | None,
) -> tuple[float, int]:
    """Return dispersion around the fit, pooled with history and floored at 1; and its df."""
    *slopes, intercept = fit.coefficients
    rate = 1 / (1 + np.exp(-(design @ np.array(slopes) + intercept)))
    n = np.array(sessions)
    x2 = float(((np.array(bad) - n * rate) ** 2 / (n * rate * (1 - rate))).sum())
    df = max(len(bad) - len(fit.coefficients), 0)
    if history:
        x2, df = x2 + history.phi * history.df, df + history.df
    return (max(1.0, x2 / df), df) if df else (1.0, 0)


def _scaled_p(p: float, phi: float, df: int) -> float:
    """Return the p of the likelihood ratio divided by phi, on F(1, df); as is when phi is 1."""
    if phi <= 1:
        return p
    return float(stats.f.sf(stats.chi2.isf(p, 1) / phi, 1, df))


def _scaled(centre: float, interval: Interval, phi: float) -> Interval:
    widen = math.sqrt(phi)
    return Interval(
        centre - (centre - interval.low) * widen, centre + (interval.high - centre) * widen
    )


def _is_observer(factors: Sequence[Factor], term: Term) -> bool:
    names = {name for name, _ in term}
    return any(factor.observer for factor in factors if factor.name in names)


def _baseline_of(factors: Sequence[Factor], term: Term) -> Term:
    baseline = {factor.name: factor.levels[0] for factor in factors}
    return tuple((name, baseline[name]) for name, _ in term)


def _rate_at(cells: Sequence[MatrixCell], term: Term) -> float | None:
    """Return the pooled rate of the cells at a term's levels."""
    chosen = [cell for cell in cells if _at(cell, term)]
    sessions = sum(cell.counts.sessions for cell in chosen)
    return sum(cell.counts.bad for cell in chosen) / sessions if sessions else None


def _exact_effect(cells: Sequence[MatrixCell], factors: Sequence[Factor], term: Term) -> Effect:
    ((name, level),) = term
    baseline = next(factor.levels[0] for factor in factors if factor.name == name)
    strata: dict[tuple[object, ...], list[int]] = {}
    for cell in cells:
        own = cell.levels[name]
        if own in (baseline, level):
            others = tuple(sorted((f, at) for f, at in cell.levels.items() if f != name))
            counts = strata.setdefault((cell.block, *others), [0, 0, 0, 0])
            side = 0 if own == baseline else 2
            counts[side] += cell.counts.bad
            counts[side + 1] += cell.counts.sessions - cell.counts.bad
    # the level comes first, so that the common odds ratio is level over baseline
    tables = [TwoByTwo(*counts[2:], *counts[:2]) for counts in strata.values()]
    stratified = cmh(tables)
    return Effect(
        term=term,
        log_odds=None,
        interval=None,
        p=exact_conditional_p(tables),
        p_holm=None,
        cmh=CmhOdds(stratified.p, stratified.common_or),
        observer=_is_observer(factors, term),
        baseline_rate=_rate_at(cells, _baseline_of(factors, term)),
        level_rate=_rate_at(cells, term),
    )


def _adjusted(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Return the effects adjusted for looking at all of them: to confirm, and to screen."""
    raw = [effect.p for effect in effects]
    both = zip(effects, adjust_p(raw, "holm"), adjust_p(raw, "fdr_bh"), strict=True)
    return tuple(replace(effect, p_holm=holm, p_bh=bh) for effect, holm, bh in both)


def adjust_p(p: Sequence[float | None], method: str = "holm") -> tuple[float | None, ...]:
    """Return p adjusted for looking at all of them; unknown ones stay unknown and don't count.

    `method` is "holm" for confirmation or "fdr_bh" for screening (Benjamini-Hochberg).
    """
    known = [value for value in p if value is not None]
    if not known:
        return tuple(None for _ in p)
    adjusted = iter(multipletests(known, method=method)[1])
    return tuple(None if value is None else float(next(adjusted)) for value in p)
