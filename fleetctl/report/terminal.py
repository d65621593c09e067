"""A report as plain text of 100 columns: one sentence, the numbers, then why and what next."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable

from fleetctl.report.document import Report, TrialLine
from fleetctl.report.metrics import about_metric
from fleetctl.report.sentences import beside, changes, headline, what_next, why
from fleetctl.report.tables import (
    Table,
    checks_table,
    classes_table,
    comparison_table,
    outcome,
    rates_table,
    unchecked,
)

WIDTH = 100
_COMMAND = re.compile(r"`fleetctl [^`]*`")
_KEPT = "\x00"  # stands for a space inside of a command while lines are broken
_GAP = 2
_LEAST_WIDTH = 20
# where a name may be broken that is longer than its column
_AFTER_A_PART = re.compile(r"(?<=[,/])(?=\S)")
_BREAK = "\0"


def render(report: Report) -> str:
    """Return the report; ends with a line feed."""
    judgement = report.judgement
    numbered = enumerate(report.trials, start=1)
    sections = [
        wrapped(headline(judgement)),
        _about(report),
        bullets(beside(judgement)),
        section(rates_table(report)),
        *(section(table) for table in [comparison_table(report)] if table),
        headed("Trials", [line for n, trial in numbered for line in _trial(n, trial, report)]),
        *(section(table) for table in [classes_table(report)] if table),
        headed("Why", bullets(why(judgement))),
        headed("Next", bullets(what_next(judgement))),
        [*section(checks_table(report)), *_not_checked(report)],
        bullets(report.notes),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _not_checked(report: Report) -> list[str]:
    told = unchecked(report.judgement.checks)
    return [f"  {line}" for line in wrapped(told, "  ")]


def _about(report: Report) -> list[str]:
    """Return what the report is about, in lines under the verdict."""
    lines = [" ".join(name for name in (report.name, report.run_id) if name)]
    if report.hypothesis:
        lines.append(f"hypothesis: {report.hypothesis}")
    lines += changes(report.differences)
    lines += about_metric(report.judgement.design.metric)
    return [part for line in lines for part in wrapped(line, "  ")]


def _trial(number: int, trial: TrialLine, report: Report) -> list[str]:
    """Return one trial; the line people know stays in one piece, so that it can be searched."""
    lead, told = f"{number:>2}  {trial.arm:<9}  ", outcome(trial, report)
    if not trial.run.trial:
        return [lead + told]
    void = f"not usable because {'; '.join(trial.invalid_because)}" if trial.invalid_because else ""
    return [lead + trial.run.trial, f"    {told}", *(f"    {x}" for x in wrapped(void, "  "))]


def section(table: Table) -> list[str]:
    """Return a table under its title."""
    return headed(table.title, grid(table))


def headed(title: str, lines: list[str]) -> list[str]:
    """Return lines under a title; nothing without lines."""
    return [title, *(f"  {line}".rstrip() for line in lines)] if lines else []


def wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text broken at 100 columns, and never inside of a command: it is to be typed."""
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT), text)
    lines = textwrap.wrap(
        whole,
        WIDTH - 2,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_KEPT, " ") for line in lines]


def bullets(texts: Iterable[str]) -> list[str]:
    """Return one bullet for each text."""
    return [line for text in texts for line in wrapped(f"- {text}", "  ")]


def grid(table: Table) -> list[str]:
    """Return a table as aligned columns; cells are broken where the table would be too wide.

    Columns without any text are left out, and so is a table without rows. Columns are
    narrowed from the right: names stand on the left.
    """
    if not table.rows:
        return []
    kept = [i for i in range(len(table.header)) if any(row[i] for row in table.rows)]
    rows = [[row[i] for i in kept] for row in (table.header, *table.rows)]
    widths = _fitting([max(len(row[i]) for row in rows) for i in range(len(kept))])
    lines: list[str] = []
    for row in rows:
        cells = [_broken(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in itertools.zip_longest(*cells, fillvalue=""):
            padded = (part.ljust(width + _GAP) for part, width in zip(line, widths, strict=True))
            lines.append("".join(padded).rstrip())
    return lines


def _fitting(widths: list[int]) -> list[int]:
    """Return column widths that fit the page, as far as columns can be narrowed."""
    fitting = list(widths)
    over = sum(fitting) + _GAP * (len(fitting) - 1) - (WIDTH - 2)
    for column in reversed(range(len(fitting))):
        less = min(max(over, 0), max(fitting[column] - _LEAST_WIDTH, 0))
        fitting[column] -= less
        over -= less
    return fitting


def _broken(cell: str, width: int) -> list[str]:
    """Return the lines of a cell; a word that is too long is broken after a comma or a slash."""
    if any(len(word) > width for word in cell.split()):
        cell = _AFTER_A_PART.sub(f"{_BREAK} ", cell)
    lines = textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
    return [line.replace(f"{_BREAK} ", "").replace(_BREAK, "") for line in lines]
