"""Which factor of a matrix matters: Firth logit on run counts, or exact tables when few are bad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from scipy import stats
from statsmodels.stats.multitest import multipletests

from fleetctl.analysis.counts import Interval
from fleetctl.analysis.firth import FirthFit, firth_fit, firth_p, spread_of_runs
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_model import (
    Factor,
    MatrixCell,
    Term,
    design_of,
    is_at,
    main_terms,
    measured_levels,
    terms_of,
)
from fleetctl.analysis.qbf import pooled_dispersion
from fleetctl.analysis.strata import TwoByTwo, cmh, exact_conditional_p

__all__ = [
    "FEWEST_BAD_FOR_A_MODEL",
    "CmhOdds",
    "Effect",
    "Factor",
    "MatrixCell",
    "MatrixEffects",
    "adjust_p",
    "interaction_p",
    "matrix_effects",
]

FEWEST_BAD_FOR_A_MODEL = 10


@dataclass(frozen=True)
class Effect:
    """What one level (or one pair of levels) does.

    Attributes:
        term: factor and level, two of them for an interaction.
        log_odds: Firth coefficient; None from exact tables.
        interval: profile-likelihood 95 % interval of it, scaled by phi; None from exact tables.
        p: two-sided; None where the data can't tell anything.
        p_holm: adjusted for all effects of the matrix.
        baseline_rate: pooled rate of the cells at the baseline level that have a partner at this
            level, equal in all other factors.
        level_rate: pooled rate of those partners.
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
        phi: dispersion that the tests were scaled by, at least 1.
        df: degrees of freedom behind it; 0 where nothing tells how runs spread.
        effects: one for each level and declared interaction.
        blocked_by: what the blocks of the cells are.
        spare: runs beyond the coefficients of the model, with those behind the history; 0 from
            exact tables.
    """

    method: str
    phi: float
    df: int
    effects: tuple[Effect, ...]
    blocked_by: str = "host"
    spare: int = 0


def matrix_effects(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    interactions: Sequence[tuple[str, str]] = (),
    history: Dispersion | None = None,
) -> MatrixEffects:
    """Return the effect of each factor level and declared interaction, Holm-adjusted.

    With fewer than ten bad sessions no model is fitted: exact tables, stratified by the other
    factors and the host, are reported instead, for main effects only. Their p are scaled by the
    dispersion of runs inside cells, too: bad sessions of one unlucky boot are no effect.

    Raises:
        InputError: effects can't be told apart, or the model did not converge.
    """
    bad = sum(cell.counts.bad for cell in cells)
    if bad < FEWEST_BAD_FOR_A_MODEL or not main_terms(measured_levels(factors, cells)):
        phi, df = _dispersion_of_cells(cells, history)
        effects = [_exact_effect(cells, factors, term, phi, df) for term in main_terms(factors)]
        return MatrixEffects("stratified exact", phi, df, _adjusted(effects))
    return _firth_effects(factors, cells, interactions, history)


def _firth_effects(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    interactions: Sequence[tuple[str, str]],
    history: Dispersion | None,
) -> MatrixEffects:
    measured = measured_levels(factors, cells)
    terms = terms_of(measured, interactions, cells)
    pairs = [term for term in terms if len(term) > 1]
    design, bad, sessions = design_of(measured, cells, terms)
    whole = firth_fit(design, bad, sessions, [terms.index(pair) for pair in pairs])
    phi, df = _residual_dispersion(whole.coefficients, design, bad, sessions, history)
    fits = [_fit_of_factor(measured, cells, terms, factor.name) for factor in measured]
    estimates = [estimate for fit in fits for estimate in fit]
    estimates += _estimates(pairs, terms, whole)
    untold = _untold(factors, measured)
    effects = [
        Effect(
            term=one.term,
            log_odds=one.log_odds,
            interval=_scaled(one.log_odds, one.interval, phi),
            p=_scaled_p(one.p, phi, df),
            p_holm=None,
            observer=_is_observer(factors, one.term),
            baseline_rate=rates[0],
            level_rate=rates[1],
        )
        for one in estimates
        for rates in [_matched_rates(cells, factors, one.term)]
        if not untold & set(one.term)
    ]
    effects = _in_order(factors, effects)
    spare = len(bad) - len(whole.coefficients) + (history.df if history else 0)
    return MatrixEffects("firth", phi, df, _adjusted(effects), spare=max(spare, 0))


def _untold(factors: Sequence[Factor], measured: Sequence[Factor]) -> set[tuple[str, str]]:
    """Return the levels of which nothing can be said: they, or their baseline, have no run."""
    return {
        (factor.name, level)
        for factor, found in zip(factors, measured, strict=True)
        for level in factor.levels[1:]
        if level not in found.levels or factor.levels[0] not in found.levels
    }


def _in_order(factors: Sequence[Factor], effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects as the factors are, with those of which nothing can be said."""
    known = {effect.term: effect for effect in effects}
    mains = main_terms(factors)
    told = [known.get(term) or _nothing_of(factors, term) for term in mains]
    return [*told, *(effect for effect in effects if effect.term not in mains)]


def _nothing_of(factors: Sequence[Factor], term: Term) -> Effect:
    return Effect(term, None, None, None, None, None, None, _is_observer(factors, term))


class _Estimate(NamedTuple):
    """What a fit says of a term, sessions taken as independent."""

    term: Term
    log_odds: float
    interval: Interval
    p: float


def _fit_of_factor(
    factors: Sequence[Factor], cells: Sequence[MatrixCell], terms: Sequence[Term], name: str
) -> list[_Estimate]:
    """Return what each level of a factor does, from the model without its interactions.

    Whether a factor matters is asked before where it does. With its interactions in the model its
    main effect is an average over the other factors' levels, of which nothing is known where all
    sessions are clean: a fault that takes two levels at once would hide both.

    Source: Nelder 1977 and Langsrud 2003 (tests that obey marginality, "type II").
    """
    kept = [term for term in terms if len(term) == 1 or name not in dict(term)]
    own = [term for term in kept if len(term) == 1 and name in dict(term)]
    if not own:
        return []
    fit = firth_fit(*design_of(factors, cells, kept), [kept.index(term) for term in own])
    return _estimates(own, kept, fit)


def _estimates(own: Sequence[Term], terms: Sequence[Term], fit: FirthFit) -> list[_Estimate]:
    """Return the estimates of the terms for which a fit has p and intervals."""
    return [
        _Estimate(term, fit.coefficients[terms.index(term)], interval, p)
        for term, p, interval in zip(own, fit.p, fit.intervals, strict=True)
    ]


def interaction_p(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    declared: Sequence[tuple[str, str]],
    pair: tuple[str, str],
    history: Dispersion | None = None,
) -> float | None:
    """Return the p of an interaction that is added to the declared model.

    It is the smallest over the pair's levels, times their number; None where its levels never
    meet in a cell.

    Raises:
        InputError: it can't be told from other effects, or the model did not converge.
    """
    factors = measured_levels(factors, cells)
    terms = terms_of(factors, (*declared, pair), cells)
    own = [i for i, term in enumerate(terms) if {name for name, _ in term} == set(pair)]
    if not own:
        return None
    design, bad, sessions = design_of(factors, cells, terms)
    coefficients, raw = firth_p(design, bad, sessions, own)
    phi, df = _residual_dispersion(coefficients, design, bad, sessions, history)
    return min(1.0, len(own) * min(_scaled_p(p, phi, df) for p in raw))


def _residual_dispersion(
    coefficients: Sequence[float],
    design: Sequence[Sequence[float]],
    bad: Sequence[int],
    sessions: Sequence[int],
    history: Dispersion | None,
) -> tuple[float, int]:
    """Return dispersion around the fit, pooled with history and floored at 1; and its df."""
    x2, df = spread_of_runs(coefficients, design, bad, sessions)
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


def _matched_rates(
    cells: Sequence[MatrixCell], factors: Sequence[Factor], term: Term
) -> tuple[float | None, float | None]:
    """Return the pooled rates at the baseline's levels and at a term's.

    Only cells count that have a partner which differs in nothing else: a fix that was measured
    where the fault is must not be compared with cells that have no fault.
    """
    names = {name for name, _ in term}
    levels = {factor.name: factor.levels[0] for factor in factors if factor.name in names}
    base: Term = tuple((name, levels[name]) for name, _ in term)

    def rest(cell: MatrixCell) -> frozenset[tuple[str, str]]:
        return frozenset(pair for pair in cell.levels.items() if pair[0] not in names)

    both = {rest(cell) for cell in cells if is_at(cell, base)}
    both &= {rest(cell) for cell in cells if is_at(cell, term)}
    matched = [cell for cell in cells if rest(cell) in both]
    return _rate_at(matched, base), _rate_at(matched, term)


def _rate_at(cells: Sequence[MatrixCell], term: Term) -> float | None:
    """Return the pooled rate of the cells at a term's levels."""
    chosen = [cell for cell in cells if is_at(cell, term)]
    sessions = sum(cell.counts.sessions for cell in chosen)
    return sum(cell.counts.bad for cell in chosen) / sessions if sessions else None


def _dispersion_of_cells(
    cells: Sequence[MatrixCell], history: Dispersion | None
) -> tuple[float, int]:
    """Return the dispersion of runs inside cells, with history, floored at 1; and its df.

    Only cells with bad sessions count: the others show no spread, and would dilute it.
    """
    eventful = [cell.counts.clusters for cell in cells if cell.counts.bad > 0]
    pooled = pooled_dispersion(eventful, history)
    return pooled.phi, pooled.df


def _exact_effect(
    cells: Sequence[MatrixCell], factors: Sequence[Factor], term: Term, phi: float, df: int
) -> Effect:
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
    rates = _matched_rates(cells, factors, term)
    p = exact_conditional_p(tables)
    return Effect(
        term=term,
        log_odds=None,
        interval=None,
        p=None if p is None else _scaled_p(p, phi, df),
        p_holm=None,
        cmh=CmhOdds(stratified.p, stratified.common_or),
        observer=_is_observer(factors, term),
        baseline_rate=rates[0],
        level_rate=rates[1],
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
