"""Which factor of a matrix matters: Firth logit on run counts, or exact tables when few are bad."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fleetctl.analysis.counts import ArmCounts, Interval
from fleetctl.analysis.firth import firth_fit, firth_p
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.qbf import pooled_dispersion
from fleetctl.analysis.strata import TwoByTwo, cmh, exact_conditional_p

FEWEST_BAD_FOR_A_MODEL = 10


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
    """

    method: str
    phi: float
    df: int
    effects: tuple[Effect, ...]
    blocked_by: str = "host"


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
    if bad < FEWEST_BAD_FOR_A_MODEL:
        phi, df = _dispersion_of_cells(cells, history)
        effects = [_exact_effect(cells, factors, term, phi, df) for term in _main_terms(factors)]
        return MatrixEffects("stratified exact", phi, df, _adjusted(effects))
    return _firth_effects(factors, cells, interactions, history)


Term = tuple[tuple[str, str], ...]


def _main_terms(factors: Sequence[Factor]) -> list[Term]:
    return [((factor.name, level),) for factor in factors for level in factor.levels[1:]]


def _terms(
    factors: Sequence[Factor],
    interactions: Sequence[tuple[str, str]],
    cells: Sequence[MatrixCell],
) -> list[Term]:
    """Return main effects, and interactions of levels that met in a cell."""
    by_name = {factor.name: factor for factor in factors}
    pairs: list[Term] = [
        ((a, level_a), (b, level_b))
        for a, b in interactions
        for level_a in by_name[a].levels[1:]
        for level_b in by_name[b].levels[1:]
    ]
    return _main_terms(factors) + [pair for pair in pairs if any(_at(c, pair) for c in cells)]


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
    terms = _terms(factors, interactions, cells)
    design, bad, sessions = _design(factors, cells, terms)
    fit = firth_fit(design, bad, sessions)
    phi, df = _residual_dispersion(fit.coefficients, np.array(design), bad, sessions, history)
    effects = [
        Effect(
            term=term,
            log_odds=fit.coefficients[i],
            interval=_scaled(fit.coefficients[i], fit.intervals[i], phi),
            p=_scaled_p(fit.p[i], phi, df),
            p_holm=None,
            observer=_is_observer(factors, term),
            baseline_rate=rates[0],
            level_rate=rates[1],
        )
        for i, term in enumerate(terms)
        for rates in [_matched_rates(cells, factors, term)]
    ]
    return MatrixEffects("firth", phi, df, _adjusted(effects))


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
    terms = _terms(factors, (*declared, pair), cells)
    own = [i for i, term in enumerate(terms) if {name for name, _ in term} == set(pair)]
    if not own:
        return None
    design, bad, sessions = _design(factors, cells, terms)
    coefficients, raw = firth_p(design, bad, sessions, own)
    phi, df = _residual_dispersion(coefficients, np.array(design), bad, sessions, history)
    return min(1.0, len(own) * min(_scaled_p(p, phi, df) for p in raw))


def _design(
    factors: Sequence[Factor], cells: Sequence[MatrixCell], terms: Sequence[Term]
) -> tuple[list[list[float]], list[int], list[int]]:
    """Return columns of terms and blocks, bad and all sessions, a row for each run."""
    hosts = sorted({cell.block for cell in cells})[1:]
    share = {factor.name: 1 / len(factor.levels) for factor in factors}
    rows = [(cell, run) for cell in cells for run in cell.counts.clusters]
    design = [
        [*(_coded(cell, term, share) for term in terms), *(float(cell.block == h) for h in hosts)]
        for cell, _ in rows
    ]
    return design, [run.bad for _, run in rows], [run.sessions for _, run in rows]


def _residual_dispersion(
    coefficients: Sequence[float],
    design: np.ndarray,
    bad: Sequence[int],
    sessions: Sequence[int],
    history: Dispersion | None,
) -> tuple[float, int]:
    """Return dispersion around the fit, pooled with history and floored at 1; and its df."""
    *slopes, intercept = coefficients
    rate = 1 / (1 + np.exp(-(design @ np.array(slopes) + intercept)))
    n = np.array(sessions)
    x2 = float(((np.array(bad) - n * rate) ** 2 / (n * rate * (1 - rate))).sum())
    df = max(len(bad) - len(coefficients), 0)
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

    both = {rest(cell) for cell in cells if _at(cell, base)}
    both &= {rest(cell) for cell in cells if _at(cell, term)}
    matched = [cell for cell in cells if rest(cell) in both]
    return _rate_at(matched, base), _rate_at(matched, term)


def _rate_at(cells: Sequence[MatrixCell], term: Term) -> float | None:
    """Return the pooled rate of the cells at a term's levels."""
    chosen = [cell for cell in cells if _at(cell, term)]
    sessions = sum(cell.counts.sessions for cell in chosen)
    return sum(cell.counts.bad for cell in chosen) / sessions if sessions else None


def _dispersion_of_cells(
    cells: Sequence[MatrixCell], history: Dispersion | None
) -> tuple[float, int]:
    """Return the dispersion of runs inside cells, with history, floored at 1; and its df.

    Only cells with bad sessions count: the others show no spread, and would dilute it.
    """
    eventful = [cell.counts.clusters for cell in cells if cell.counts.bad > 0]
    return pooled_dispersion(eventful, history)


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
