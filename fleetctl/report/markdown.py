"""A report as Markdown, for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.report.document import Report
from fleetctl.report.metrics import about_metric
from fleetctl.report.sentences import beside, changes, headline, what_next, why
from fleetctl.report.tables import (
    Table,
    checks_table,
    classes_table,
    comparison_table,
    rates_table,
    trials_table,
    unchecked,
)


def render(report: Report) -> str:
    """Return the report; ends with a line feed."""
    judgement = report.judgement
    tables = (
        rates_table(report),
        comparison_table(report),
        trials_table(report),
        classes_table(report),
    )
    about = [f"hypothesis: {report.hypothesis}"] if report.hypothesis else []
    parts = [
        f"# {escaped(report.name) or 'Verdict'}",
        f"**{escaped(headline(judgement))}**",
        bulleted(
            [
                *about,
                *changes(report.differences),
                *about_metric(judgement.design.metric),
            ]
        ),
        bulleted(beside(judgement)),
        *(_section(table) for table in tables if table is not None),
        _headed("Why", why(judgement)),
        _headed("Next", what_next(judgement)),
        _section(checks_table(report)),
        escaped(unchecked(judgement.checks)),
        bulleted(report.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(table: Table) -> str:
    return f"## {table.title}\n\n{pipes(table)}"


def _headed(title: str, texts: list[str]) -> str:
    return f"## {title}\n\n{bulleted(texts)}" if texts else ""


def bulleted(texts: Iterable[str]) -> str:
    """Return texts as a list, with nothing of them taken for markup."""
    return "\n".join(f"- {escaped(text)}" for text in texts)


def pipes(table: Table) -> str:
    """Return a table in pipe syntax."""
    rows = (table.header, tuple("---" for _ in table.header), *table.rows)
    return "\n".join("| " + " | ".join(escaped(cell) for cell in row) + " |" for row in rows)


def escaped(text: str) -> str:
    """Return text in which nothing is markup: outcomes may quote what a model wrote."""
    for special in "\\`*_[]<>|":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")
