"""A matrix as plain text, Markdown and JSON: the map, every cell, every factor, what next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fleetctl.analysis.matrix_effects import MatrixEffects
from fleetctl.analysis.rates import clopper_pearson
from fleetctl.report.markdown import bulleted, escaped, pipes
from fleetctl.report.matrix_heat import heat_table
from fleetctl.report.matrix_next import explanation, next_steps
from fleetctl.report.matrix_words import MatrixReport, headline, is_firm, sentence
from fleetctl.report.metrics import WORDS, about_metric
from fleetctl.report.numbers import UNKNOWN, count, percents, ratio
from fleetctl.report.sentences import history_used
from fleetctl.report.tables import Table
from fleetctl.report.terminal import bullets, headed, section, wrapped

__all__ = ["MatrixReport", "as_json", "headline", "markdown", "render", "sentence"]

SCHEMA = "fleetctl.matrix/1"


def cells_table(report: MatrixReport) -> Table:
    """Return every cell with its rate; the interval takes sessions as independent."""
    names = tuple(factor.name for factor in report.factors)
    header = (
        *names,
        "host",
        "runs",
        WORDS[report.metric].bad,
        "95% CI if sessions were independent",
    )
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


def about(report: MatrixReport) -> list[str]:
    """Return what the report is about, in lines under the headline."""
    made = sum(len(cell.counts.runs) for cell in report.cells)
    lines = [f"hypothesis: {report.hypothesis}"] if report.hypothesis else []
    if report.planned:
        reused = f", {report.reused} of them reused" if report.reused else ""
        lines.append(f"{made} of {count(report.planned, 'run')} count{reused}")
    if report.explained is not None:
        lines.append(explanation(report.explained, WORDS[report.metric].bad))
    lines += about_metric(report.metric)
    return lines


def sentences(report: MatrixReport) -> list[str]:
    """Return a plain sentence for every effect."""
    if report.effects is None:
        return []
    return [
        sentence(effect, report.aliases.get(tuple(name for name, _ in effect.term), ()))
        for effect in report.effects.effects
    ]


def failures_table(report: MatrixReport) -> Table | None:
    """Return the runs that brought nothing; None without any."""
    if not report.failed:
        return None
    rows = tuple((cell, str(run + 1), site, why) for cell, run, site, why in report.failed)
    return Table("Runs that failed", ("cell", "run", "site", "why"), rows)


def method(report: MatrixReport) -> list[str]:
    """Return how the effects were estimated."""
    effects = report.effects
    if effects is None:
        return []
    looked = f"adjusted for looking at {len(effects.effects)} effects (Holm; BH for screening)"
    lent = [] if report.history is None else [history_used(report.history)]
    unknown = "sessions taken as independent, since no cell tells how its runs spread"
    if effects.method == "firth":
        told = f"likelihood-ratio tests scaled by dispersion {effects.phi:.2f} on {effects.df} df"
        return [
            f"Firth logit on runs, blocks are each {effects.blocked_by}, a factor is tested "
            f"without its interactions, {told if effects.df else unknown}, {looked}",
            *lent,
        ]
    source = "runs inside cells" if report.history is None else "runs inside cells and A/A runs"
    spread = (
        f"p scaled by dispersion {effects.phi:.2f} of {source} on {effects.df} df"
        if effects.df
        else unknown
    )
    return [
        f"fewer than 10 {WORDS[report.metric].bad} sessions: exact tables, stratified by the other"
        f" factors and the {effects.blocked_by}, {spread}, {looked}; Cochran-Mantel-Haenszel beside"
        " them takes sessions as independent; no interaction is tested with so few",
        *lent,
    ]


def _quarantine(report: MatrixReport) -> list[str]:
    return [f"{site} was set aside: {why}" for site, why in report.quarantined]


def render(report: MatrixReport) -> str:
    """Return the matrix as plain text; ends with a line feed."""
    failures = failures_table(report)
    title = " ".join(name for name in (report.name, report.run_id) if name)
    sections = [
        [*([title, ""] if title else []), *wrapped(headline(report))],
        bullets(about(report)),
        section(heat_table(report.factors, report.cells)),
        headed("Factors", bullets(sentences(report))),
        section(cells_table(report)),
        section(failures) if failures else [],
        headed("Next", bullets(next_steps(report))),
        bullets([*_quarantine(report), *method(report), *report.notes]),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def markdown(report: MatrixReport) -> str:
    """Return the matrix as Markdown, for an issue or a pull request."""
    tables = [heat_table(report.factors, report.cells), failures_table(report)]
    parts = [
        f"# {escaped(report.name) or 'Matrix'}",
        f"**{escaped(headline(report))}**",
        bulleted(about(report)),
        *(f"## {escaped(table.title)}\n\n{pipes(table)}" for table in tables if table),
        _headed("Factors", sentences(report)),
        f"## Cells\n\n{pipes(cells_table(report))}",
        _headed("Next", next_steps(report)),
        bulleted([*_quarantine(report), *method(report), *report.notes]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headed(title: str, texts: Iterable[str]) -> str:
    told = bulleted(texts)
    return f"## {title}\n\n{told}" if told else ""


def as_json(report: MatrixReport) -> dict[str, Any]:
    """Return the matrix as plain values, unrounded; cells list their trials."""
    return {
        "schema": SCHEMA,
        "name": report.name,
        "run": report.run_id,
        "sentence": headline(report),
        "metric": report.metric,
        "about": about(report),
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
        **_effects_json(report, report.effects),
        "explained": None if report.explained is None else asdict(report.explained),
        "screened": [asdict(one) for one in report.screened],
        "failed": [
            {"cell": cell, "run": run, "site": site, "why": why}
            for cell, run, site, why in report.failed
        ],
        "quarantined": dict(report.quarantined),
        "history": None if report.history is None else asdict(report.history),
        "planned": report.planned,
        "reused": report.reused,
        "next": next_steps(report),
        "notes": list(report.notes),
        "failure": report.failure,
        "is_firm": is_firm(report),
    }


def _effects_json(report: MatrixReport, effects: MatrixEffects | None) -> dict[str, Any]:
    if effects is None:
        return {"method": None, "phi": None, "df": None, "blocked_by": None, "effects": []}
    return {
        "method": effects.method,
        "phi": effects.phi,
        "df": effects.df,
        "blocked_by": effects.blocked_by,
        "effects": [
            {**asdict(effect), "sentence": told}
            for effect, told in zip(effects.effects, sentences(report), strict=True)
        ],
    }
