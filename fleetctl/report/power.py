"""What a design can see, in words and as a table: told before any host is touched."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.power import MOST_RUNS, PowerTable
from fleetctl.report.metrics import about_metric
from fleetctl.report.numbers import count, host_time, percent
from fleetctl.report.tables import Table
from fleetctl.report.terminal import bullets, section, wrapped

SCHEMA = "fleetctl.power/1"


def headline(table: PowerTable) -> str:
    """Return what the design can see, in one sentence."""
    reach, base = table.reach, percent(table.control_rate)
    design = f"{count(reach.runs, 'run')} of {count(table.assumed.sessions, 'session')} per arm"
    wanted = percent(table.assumed.power)
    if reach.smallest_visible is None:
        return f"{design} can't confirm even a complete fix of {base} with {wanted} power."
    seen = f"{base} -> {percent(reach.smallest_visible)} or less with {wanted} power"
    if table.only_a_complete_fix:
        return f"{design} can confirm a complete fix and little else: they see {seen}."
    return f"{design} see {seen}."


def details(table: PowerTable) -> list[str]:
    """Return the sentences beside the table."""
    reach, assumed = table.reach, table.assumed
    told = []
    if reach.target is not None and reach.power is not None:
        needed = _runs(reach.runs_for_target)
        told.append(
            f"{percent(table.control_rate)} -> {percent(reach.target)} is seen with probability"
            f" {percent(reach.power)}; {percent(assumed.power)} needs {needed} runs per arm"
        )
    if reach.host_minutes is not None:
        told.append(f"the design takes {host_time(reach.host_minutes)} of host time for both arms")
    source = "assumed"
    if assumed.history is not None:
        source = _history(assumed.history)
    told.append(
        f"correlation inside runs {assumed.rho:g} (design effect {assumed.design_effect:.2f},"
        f" {source}), two-sided level {assumed.alpha:g}"
    )
    return [*told, *about_metric(assumed.metric)]


def runs_table(table: PowerTable) -> Table:
    """Return the runs per arm needed."""
    base, wanted = percent(table.control_rate), percent(table.assumed.power)
    header = (f"from {base} to", *(f"ICC {rho:g}" for rho in table.rhos))
    rows = tuple(
        (percent(row.treatment_rate), *(_runs(runs) for runs in row.runs)) for row in table.rows
    )
    return Table(f"Runs per arm for {wanted} power", header, rows)


def _runs(runs: int | None) -> str:
    return f"> {MOST_RUNS}" if runs is None else str(runs)


def render(table: PowerTable) -> str:
    """Return the power statement as plain text; ends with a line feed."""
    sections = [wrapped(headline(table)), bullets(details(table)), section(runs_table(table))]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def brief(table: PowerTable) -> list[str]:
    """Return what the design can see and what others need in a few lines, and where the table is.

    The runs are those at the correlation that is assumed for this design.
    """
    minutes = table.reach.host_minutes
    takes = "" if minutes is None else f" Both arms take {host_time(minutes)} of host time."
    at = table.rhos.index(table.assumed.rho)
    needs = ", ".join(
        f"{_runs(row.runs[at])} for {percent(row.treatment_rate)}" for row in table.rows
    )
    base, wanted = percent(table.control_rate), percent(table.assumed.power)
    history = table.assumed.history
    known = "" if history is None else f" {_history(history)}."
    return [
        *wrapped(f"{headline(table)}{takes}"),
        *wrapped(f"Runs per arm for {wanted} power from {base}: {needs}.{known}"),
        *(line for told in about_metric(table.assumed.metric) for line in wrapped(told)),
        f"`fleetctl power --baseline {base}` shows other designs.",
    ]


def _history(history: Dispersion) -> str:
    names = ", ".join(history.records) or "given"
    return f"A/A history with {history.df} df: {names}"


def as_json(table: PowerTable) -> dict[str, Any]:
    """Return the power statement as plain values, unrounded."""
    return {
        "schema": SCHEMA,
        "sentence": headline(table),
        "details": details(table),
        "control_rate": table.control_rate,
        "assumed": {**asdict(table.assumed), "design_effect": table.assumed.design_effect},
        "rhos": list(table.rhos),
        "runs_needed": [
            {"treatment_rate": row.treatment_rate, "runs": list(row.runs)} for row in table.rows
        ],
        "design": asdict(table.reach),
        "only_a_complete_fix": table.only_a_complete_fix,
    }
