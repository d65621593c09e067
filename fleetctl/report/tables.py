"""The numbers of a report as tables of text, for every renderer alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fleetctl.analysis.guards import Check
from fleetctl.analysis.judgement import ArmEstimate, Numbers
from fleetctl.analysis.two_arms import SessionView
from fleetctl.report.document import Report, TrialLine
from fleetctl.report.labels import LABELS
from fleetctl.report.numbers import (
    amount,
    count,
    level_text,
    p_beside,
    p_value,
    percent,
    percents,
    points,
    points_interval,
    probability,
    ratio,
)
from fleetctl.report.sentences import words_of
from fleetctl.trial.people import HEADS


class Table(NamedTuple):
    """A table of text.

    Attributes:
        title: what it shows, with what it assumes.
        header: names of the columns.
        rows: cells.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def rates_table(report: Report) -> Table:
    """Return both arms' rates; each interval says which dispersion it assumes."""
    judgement = report.judgement
    spread = "spread of runs unknown"
    if judgement.numbers is not None and judgement.numbers.comparison.df:
        comparison = judgement.numbers.comparison
        spread = f"dispersion {comparison.phi:.2f} on {comparison.df} df"
    bad = words_of(judgement).bad
    header = ("arm", "runs", bad, f"95% CI, {spread}", "95% CI if sessions were independent")
    arms = (judgement.control, judgement.treatment)
    return Table("Rates", header, tuple(_rate_row(arm) for arm in arms))


def _rate_row(arm: ArmEstimate) -> tuple[str, ...]:
    return (
        arm.counts.name,
        str(len(arm.counts.runs)),
        ratio(arm.counts.bad, arm.counts.sessions),
        percents(arm.adjusted),
        percents(arm.exact),
    )


def comparison_table(report: Report) -> Table | None:
    """Return the comparison; None when an arm is empty."""
    numbers = report.judgement.numbers
    if numbers is None:
        return None
    sessions = [] if report.sessions is None else _session_rows(report.sessions)
    arms = (report.judgement.control, report.judgement.treatment)
    bounds = [_bounds_row(arm) for arm in arms]
    rows = [*_main_rows(numbers), *bounds, *sessions, *_reading_rows(numbers)]
    if numbers.evalue is not None:
        rows.append(("e-value of the random blocks", f"{numbers.evalue:.3g}"))
    return Table("Comparison, treatment minus control", ("what", "value"), tuple(rows))


def _main_rows(numbers: Numbers) -> list[tuple[str, str]]:
    c = numbers.comparison
    told = "not possible: no replication and no history"
    if c.test is not None:
        level = "look not declared" if c.level is None else f"level {level_text(c.level)}"
        p = p_value(c.test.p) if c.level is None else p_beside(c.test.p, c.level)
        told = f"p {p} (t = {c.test.t:.2f} on {c.df} df, {level})"
    return [
        ("difference", f"{points(c.difference)} points"),
        ("95% CI, runs as units", points_interval(c.ci95)),
        ("90% CI, runs as units", points_interval(c.ci90)),
        ("main test, runs as units", told),
    ]


def _bounds_row(arm: ArmEstimate) -> tuple[str, str]:
    """Return an arm's bounds, as the headline names them."""
    bounds = f"at least {percent(arm.lower95)}, at most {percent(arm.upper95)}"
    return (f"{arm.counts.name}, one-sided 95% bounds", bounds)


def _session_rows(view: SessionView) -> list[tuple[str, str]]:
    boschloo = f"Boschloo p {p_value(view.boschloo_p)}, " if view.boschloo_p is not None else ""
    interval = points_interval(view.mn95)
    told = f"{boschloo}Fisher p {p_value(view.fisher_p)}, 95% CI {interval}"
    return [("if sessions were independent", told)]


def _reading_rows(numbers: Numbers) -> list[tuple[str, str]]:
    c, outlook = numbers.comparison, numbers.outlook
    visible = outlook.smallest_visible
    seen = "not even a complete fix" if visible is None else f"a rate of {percent(visible)} or less"
    return [
        ("P(lower), sessions independent", probability(c.p_lower)),
        ("P(at least halved), same", probability(c.p_halved)),
        (f"seen with 80% power by {count(outlook.runs, 'run')} per arm", seen),
    ]


def trials_table(report: Report) -> Table:
    """Return every trial with the line people know and where its transcripts lie."""
    rows = tuple(
        (
            str(number),
            line.arm,
            outcome(line, report),
            line.run.trial,
            "; ".join(line.invalid_because),
        )
        for number, line in enumerate(report.trials, start=1)
    )
    return Table("Trials", ("", "arm", "outcome", "transcripts", "not usable because"), rows)


def outcome(line: TrialLine, report: Report) -> str:
    """Return the line people know."""
    head = HEADS[report.judgement.design.metric]
    return line.line or f"{head} sessions: {ratio(line.run.bad, line.run.sessions)}"


def classes_table(report: Report) -> Table | None:
    """Return the sessions of each outcome class, one row a class; None where only counts are known.

    The last row is their sum.
    """
    classes = list(dict.fromkeys(name for line in report.trials for name in line.classes))
    if not classes:
        return None
    arms = (report.judgement.control.counts.name, report.judgement.treatment.counts.name)
    counts = [[_sum(report, arm, name) for arm in arms] for name in classes]
    told = [
        *zip(classes, counts, strict=True),
        ("all sessions", [*map(sum, zip(*counts, strict=True))]),
    ]
    rows = tuple((name, *map(str, numbers)) for name, numbers in told)
    return Table("Outcome classes", ("class", *arms), rows)


def _sum(report: Report, arm: str, outcome: str) -> int:
    return sum(line.classes.get(outcome, 0) for line in report.trials if line.arm == arm)


def checks_table(report: Report) -> Table:
    """Return every guard that was checked, with its number."""
    checks = report.judgement.checks
    rows = tuple(_check_row(check, report) for check in checks if check.passed is not None)
    return Table("Checks", ("", "check", "found", "allowed"), rows)


def unchecked(checks: Sequence[Check]) -> str:
    """Return the guards of which nothing is known, as one sentence; empty without any."""
    names = [LABELS[check.name] for check in checks if check.passed is None]
    return f"not checked: {'; '.join(names)}" if names else ""


def _check_row(check: Check, report: Report) -> tuple[str, ...]:
    mark = "ok" if check.passed else "FAIL" if check.voids else "note"
    found = "; ".join(check.facts)
    if check.name == "confounded":  # which things, the head of the report names
        found = count(len(check.facts), "thing") if report.differences else "nothing"
    if check.name == "disturbed":
        found = _trials_named(check, report) or found
    if check.value is not None:
        found = amount(check.value, check.unit)
    return (mark, LABELS[check.name], found, _allowed(check))


def _trials_named(check: Check, report: Report) -> str:
    """Return how many trials a check names; empty for none. Why tells the reasons."""
    trials = [line.run.trial for line in report.trials if line.run.trial]
    named = [name for name in trials if any(f": {name}: " in fact for fact in check.facts)]
    return f"{len(named)} of {count(len(report.trials), 'trial')}" if named else ""


def _allowed(check: Check) -> str:
    if check.limit is None:
        return ""
    limit = f"{check.limit:g}" if check.unit == "p" else amount(check.limit, check.unit)
    if check.unit == "rate":
        return f"above {limit}"
    at_least = check.unit == "p" or check.name == "concurrency"
    return f"{'at least' if at_least else 'at most'} {limit}"
