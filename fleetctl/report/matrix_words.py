"""A matrix in words: what it found, and a plain sentence for every factor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.analysis.conjunction import Conjunction
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_effects import Effect, Factor, MatrixCell, MatrixEffects
from fleetctl.analysis.matrix_screen import Screened
from fleetctl.report.numbers import p_value, percent
from fleetctl.spec.metric import Metric

ALPHA = 0.05


@dataclass(frozen=True)
class MatrixReport:
    """The findings of a matrix.

    Attributes:
        name: the experiment.
        factors: what varied.
        cells: what was counted; one entry for each cell and host.
        effects: what each factor does; None where they could not be estimated.
        failure: why not; empty where they could.
        hypothesis: as the author wrote it.
        run_id: of the run.
        planned: runs of all cells.
        reused: of them, runs that an earlier controller had measured.
        failed: cell, number of the run, site and reason of runs that brought nothing.
        quarantined: site and reason.
        aliases: factors of an effect -> effects that the design can't tell from it.
        explained: the combination of levels that tells best where sessions are bad.
        screened: interactions that nobody declared and that may be there.
        history: A/A runs that lent the tests their dispersion; None without.
        notes: what else the reader has to know.
        metric: what is counted.
    """

    name: str
    factors: tuple[Factor, ...]
    cells: tuple[MatrixCell, ...]
    effects: MatrixEffects | None
    failure: str = ""
    hypothesis: str = ""
    run_id: str = ""
    planned: int = 0
    reused: int = 0
    failed: tuple[tuple[str, int, str, str], ...] = ()
    quarantined: tuple[tuple[str, str], ...] = ()
    aliases: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    explained: Conjunction | None = None
    screened: tuple[Screened, ...] = ()
    history: Dispersion | None = None
    notes: tuple[str, ...] = ()
    metric: Metric = "corruption"


def headline(report: MatrixReport) -> str:
    """Return which factors matter, in one sentence."""
    if report.effects is None:
        return f"MATRIX: no effect could be estimated: {report.failure}."
    moved = [spelled(e.term) for e in report.effects.effects if matters(e)]
    if not moved:
        return "MATRIX: no factor is shown to move the rate; that is no proof that none does."
    return f"MATRIX: the rate moves with {', '.join(moved)} (Holm-adjusted p below {ALPHA:g})."


def matters(effect: Effect) -> bool:
    """Whether an effect is shown, after the adjustment for looking at all of them."""
    return effect.p_holm is not None and effect.p_holm < ALPHA


def is_firm(report: MatrixReport) -> bool:
    """Whether something is shown; "not shown" is no proof that nothing is there."""
    return report.effects is not None and any(matters(e) for e in report.effects.effects)


def sentence(effect: Effect, aliases: Sequence[str] = ()) -> str:
    """Return what one effect says; `aliases` are effects that the design can't tell from it."""
    name = spelled(effect.term)
    if aliases:
        name += f" (or {' or '.join(aliases)}: the fraction can't tell)"
    is_pair = len(effect.term) > 1
    rates = f"{percent(effect.baseline_rate)} -> {percent(effect.level_rate)}"
    if is_pair:
        rates = f"neither -> both {rates}"
    if effect.p is None:
        why = "no cells differ in it alone with any bad session"
        if effect.baseline_rate is None and effect.level_rate is None:
            why = "no cells that were measured differ in it alone"
        return f"{name}: nothing can be said, {why}"
    tested = f"{rates}{_odds(effect)}, p {p_value(effect.p)}, Holm p {p_value(effect.p_holm)}"
    if not matters(effect):
        told = (
            "each is not shown to change what the other does" if is_pair else "not shown to matter"
        )
        return f"{name}: {told} ({tested})"
    taint = ""
    if effect.observer:
        taint = "; it is an observer, so what was measured with it on can't be trusted"
    return f"{name}: {_direction(effect)} ({tested}){taint}"


def _direction(effect: Effect) -> str:
    if len(effect.term) > 1:
        way = "fewer" if (effect.log_odds or 0) < 0 else "more"
        return f"together they make {way} sessions bad than their two effects add up to"
    return f"{_verb(effect)} the rate"


def _verb(effect: Effect) -> str:
    if effect.log_odds is not None:
        return "lowers" if effect.log_odds < 0 else "raises"
    return "lowers" if (effect.level_rate or 0) < (effect.baseline_rate or 0) else "raises"


def _odds(effect: Effect) -> str:
    if effect.log_odds is None or effect.interval is None:
        return _stratified(effect)
    low, high = math.exp(effect.interval.low), math.exp(effect.interval.high)
    odds, interval = f"x{math.exp(effect.log_odds):.2g}", f"95% CI {low:.2g} to {high:.2g}"
    if len(effect.term) > 1:
        # their product term: a ratio of odds ratios, which the two rates beside it don't show
        return f"; odds with both {odds} of what each change alone would add up to, {interval}"
    return f", odds {odds}, {interval}"


def _stratified(effect: Effect) -> str:
    if effect.cmh is None or effect.cmh.p is None:
        return ""
    ratio = effect.cmh.odds_ratio
    odds = "" if ratio is None else f", common odds x{ratio:.2g}"
    return f"{odds}, CMH p {p_value(effect.cmh.p)}, exact"


def spelled(term: Sequence[tuple[str, str]]) -> str:
    """Return the levels of an effect as people read them."""
    return " with ".join(f"{factor}={level}" for factor, level in term)
