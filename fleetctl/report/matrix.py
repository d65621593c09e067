"""A matrix in words and tables: every cell's rate, and a plain sentence for every factor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleetctl.analysis.matrix_effects import Effect, Factor, MatrixCell, MatrixEffects
from fleetctl.analysis.rates import clopper_pearson
from fleetctl.report.numbers import UNKNOWN, p_value, percent, percents, ratio
from fleetctl.report.tables import Table
from fleetctl.report.terminal import bullets, section, wrapped

SCHEMA = "fleetctl.matrix/1"
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
        notes: what else the reader has to know.
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
    notes: tuple[str, ...] = ()


def headline(report: MatrixReport) -> str:
    """Return which factors matter, in one sentence."""
    if report.effects is None:
        return f"MATRIX: no effect could be estimated: {report.failure}."
    moved = [_spelled(e.term) for e in report.effects.effects if _matters(e)]
    if not moved:
        return "MATRIX: no factor is shown to move the rate; that is no proof that none does."
    return f"MATRIX: the rate moves with {', '.join(moved)} (Holm-adjusted p below {ALPHA:g})."


def _matters(effect: Effect) -> bool:
    return effect.p_holm is not None and effect.p_holm < ALPHA


def sentence(effect: Effect) -> str:
    """Return what one effect says."""
    name = _spelled(effect.term)
    rates = f"{percent(effect.baseline_rate)} -> {percent(effect.level_rate)}"
    if effect.p is None:
        return f"{name}: nothing can be said, no cells differ in it alone with any bad session"
    tested = f"{rates}{_odds(effect)}, p {p_value(effect.p)}, Holm p {p_value(effect.p_holm)}"
    if not _matters(effect):
        return f"{name}: not shown to matter ({tested})"
    taint = ""
    if effect.observer:
        taint = "; it is an observer, so what was measured with it on can't be trusted"
    return f"{name}: {_direction(effect)} the rate ({tested}){taint}"


def _direction(effect: Effect) -> str:
    if len(effect.term) > 1:
        return "their combination moves"
    if effect.log_odds is not None:
        return "lowers" if effect.log_odds < 0 else "raises"
    return "lowers" if (effect.level_rate or 0) < (effect.baseline_rate or 0) else "raises"


def _odds(effect: Effect) -> str:
    if effect.log_odds is None or effect.interval is None:
        return ""
    low, high = math.exp(effect.interval.low), math.exp(effect.interval.high)
    return f", odds x{math.exp(effect.log_odds):.2g}, 95% CI {low:.2g} to {high:.2g}"


def _spelled(term: Sequence[tuple[str, str]]) -> str:
    return " with ".join(f"{factor}={level}" for factor, level in term)


def cells_table(report: MatrixReport) -> Table:
    """Return every cell with its rate; the interval takes sessions as independent."""
    names = tuple(factor.name for factor in report.factors)
    header = (*names, "host", "runs", "bad", "95% CI if sessions were independent")
    rows = tuple(
        (
            *(cell.levels[name] for name in names),
            cell.block,
            str(len(cell.counts.runs)),
            ratio(cell.counts.bad, cell.counts.sessions),
            percents(clopper_pearson(cell.counts.bad, cell.counts.sessions))
            if cell.counts.sessions
            else UNKNOWN,
        )
        for cell in report.cells
    )
    return Table("Cells", header, rows)


def method(report: MatrixReport) -> list[str]:
    """Return how the effects were estimated."""
    effects = report.effects
    if effects is None:
        return []
    if effects.method == "firth":
        return [
            f"Firth logit on runs, likelihood-ratio tests scaled by dispersion {effects.phi:.2f}"
            f" on {effects.df} df, adjusted for looking at {len(effects.effects)} effects"
        ]
    return [
        "fewer than 10 bad sessions: exact tables, stratified by the other factors and the host,"
        f" adjusted for looking at {len(effects.effects)} effects; sessions taken as independent"
    ]


def render(report: MatrixReport) -> str:
    """Return the matrix as plain text; ends with a line feed."""
    effects = () if report.effects is None else report.effects.effects
    sections = [
        [*([report.name, ""] if report.name else []), *wrapped(headline(report))],
        bullets(sentence(effect) for effect in effects),
        section(cells_table(report)),
        bullets(method(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def as_json(report: MatrixReport) -> dict[str, Any]:
    """Return the matrix as plain values, unrounded; cells list their trials."""
    effects = report.effects
    return {
        "schema": SCHEMA,
        "name": report.name,
        "sentence": headline(report),
        "factors": [asdict(factor) for factor in report.factors],
        "cells": [
            {
                "levels": dict(cell.levels),
                "host": cell.block,
                "bad": cell.counts.bad,
                "sessions": cell.counts.sessions,
                "rate": cell.counts.rate,
                "trials": [run.trial for run in cell.counts.runs],
            }
            for cell in report.cells
        ],
        "method": None if effects is None else effects.method,
        "phi": None if effects is None else effects.phi,
        "df": None if effects is None else effects.df,
        "effects": []
        if effects is None
        else [{**asdict(e), "sentence": sentence(e)} for e in effects.effects],
        "failure": report.failure,
    }
