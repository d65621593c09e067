"""A bisection in words: which change it is, how sure that is, and what it rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fleetctl.analysis.bisection import Belief
from fleetctl.analysis.bisection_search import BisectDesign, End, Ending, PointRate
from fleetctl.analysis.judgement import Judgement, Word
from fleetctl.errors import ExitCode
from fleetctl.report.metrics import WORDS, about_metric
from fleetctl.report.numbers import count, percent, percents, probability, ratio
from fleetctl.report.sentences import headline as verdict_headline
from fleetctl.report.sentences import what_next, why
from fleetctl.report.tables import Table
from fleetctl.report.terminal import bullets, section, wrapped
from fleetctl.spec.metric import Metric

SCHEMA = "fleetctl.bisect/1"
CREDIBLE = 0.95
_SHOWN_SUSPECTS = 5
MONOTONE = (
    "the search assumes one step: the rate is the same at every point before it, and the same from"
    " it on; two changes that each move the rate, or one that undoes another, can mislead it"
)


@dataclass(frozen=True)
class BisectReport:
    """The findings of a bisection.

    Attributes:
        labels: of all changes, in order.
        points: those that could be measured; `end`, `belief` and `rates` count among them.
        design: over these points.
        end: how it ended.
        belief: what all runs say.
        rates: what was counted at each point.
        search_runs: runs of the search alone.
        confirmation_runs: the rest.
        judgement: of the confirmation; None where there was none.
        skipped: builds that could not be made or did not start, each with its reason.
        as_found: what every build stood on that is not of this search.
        metric: what is counted.
    """

    name: str
    hypothesis: str
    run_id: str
    labels: tuple[str, ...]
    points: tuple[int, ...]
    design: BisectDesign
    end: End
    belief: Belief
    rates: tuple[PointRate, ...]
    search_runs: int
    confirmation_runs: int
    judgement: Judgement | None
    skipped: tuple[tuple[str, str], ...] = ()
    as_found: tuple[str, ...] = ()
    metric: Metric = "corruption"

    def step_labels(self, step: int) -> tuple[str, ...]:
        """Return the changes of one step; several where builds between them were left out."""
        return self.labels[self.points[step - 1] : self.points[step]]

    @property
    def is_confirmed(self) -> bool:
        """Whether the verdict says that things are better without the suspect, or with the list."""
        mended = (Word.ELIMINATED, Word.REDUCED)
        return self.judgement is not None and self.judgement.word in mended

    @property
    def is_open(self) -> bool:
        """Whether a confirmation was made and does not uphold what the search says."""
        return self.judgement is not None and not self.is_confirmed

    @property
    def exit_code(self) -> ExitCode:
        """What a process ends with: 0 for a culprit that holds."""
        if self.is_open:
            is_void = self.judgement is not None and self.judgement.word is Word.INVALID
            return ExitCode.INVALID if is_void else ExitCode.INCONCLUSIVE
        if self.end.ending is Ending.FOUND:
            return ExitCode.OK
        if self.end.ending is Ending.OUT_OF_RUNS:
            return ExitCode.INCONCLUSIVE
        return ExitCode.UNEXPECTED_VERDICT


def headline(report: BisectReport) -> str:
    """Return the answer in one sentence."""
    told = {
        Ending.FOUND: _found,
        Ending.NO_CHANGE: _no_change,
        Ending.REVERSED: _reversed,
        Ending.OUT_OF_RUNS: _out_of_runs,
    }
    return told[report.end.ending](report)


def _found(report: BisectReport) -> str:
    culprit = report.end.culprit or report.belief.best
    labels = report.step_labels(culprit)
    named = labels[0] if len(labels) == 1 else f"one of {', '.join(labels)}"
    mass = report.belief.raised[culprit - 1]
    word = "SUSPECT, NOT CONFIRMED" if report.is_open else "FOUND"
    return (
        f"{word}: {named} raises the rate from about {percent(report.belief.good_rate)} to about"
        f" {percent(report.belief.bad_rate)} (probability {probability(mass)})."
    )


def _no_change(report: BisectReport) -> str:
    return (
        f"NO CHANGE: both ends of the list are alike ({_ends(report)}); that no change moves the"
        f" rate by {percent(report.design.worlds.rates.smallest)} or more has probability"
        f" {probability(report.belief.none)}."
    )


def _reversed(report: BisectReport) -> str:
    step = int(np.argmax(report.belief.lowered)) + 1
    if report.is_open:
        return (
            f"REVERSED, NOT CONFIRMED: the first build looked worse than the last"
            f" ({_ends(report)}), and the runs made to confirm it don't show it; boots that draw"
            " lots whether they have the fault look like this, so nothing is named."
        )
    return (
        f"REVERSED: the list lowers the rate ({_ends(report)}), it does not raise it; the likeliest"
        f" to do so is {' or '.join(report.step_labels(step))}"
        f" ({probability(report.belief.lowered[step - 1])})."
    )


def _out_of_runs(report: BisectReport) -> str:
    kept = suspects(report)
    return (
        f"NOT DECIDED: after {count(report.search_runs, 'run')} the culprit is among"
        f" {count(len(kept), 'change')} of {len(report.labels)} with {percent(CREDIBLE)}"
        f" probability, if there is one: {_some(kept)}."
    )


def suspects(report: BisectReport) -> tuple[str, ...]:
    """Return the smallest set of changes that holds 95 % of what speaks for a culprit."""
    steps = report.belief.credible(CREDIBLE)
    return tuple(label for step in steps for label in report.step_labels(step))


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN_SUSPECTS
    shown = ", ".join(names[:_SHOWN_SUSPECTS])
    return f"{shown} and {more} more" if more > 0 else shown


def _ends(report: BisectReport) -> str:
    last = len(report.points) - 1
    found = {rate.point: ratio(rate.bad, rate.sessions) for rate in report.rates}
    return f"first {found.get(0, 'not measured')}, last {found.get(last, 'not measured')}"


def rates_table(report: BisectReport) -> Table:
    """Return the counts of every build that was measured."""
    rows = tuple(
        (
            str(report.points[rate.point]),
            _build(report, rate.point),
            str(rate.runs),
            ratio(rate.bad, rate.sessions),
            percents(rate.interval),
        )
        for rate in report.rates
    )
    header = (
        "changes",
        "up to",
        "runs",
        WORDS[report.metric].bad,
        "95% CI if sessions were independent",
    )
    return Table("Measured builds", header, rows)


def _build(report: BisectReport, step: int) -> str:
    point = report.points[step]
    return report.labels[point - 1] if point else "none of the changes"


def notes(report: BisectReport) -> list[str]:
    """Return what must be said beside the answer."""
    belief = report.belief
    order = sorted(range(len(belief.raised)), key=lambda i: -belief.raised[i])[:_SHOWN_SUSPECTS]
    told = [
        f"{probability(belief.raised[i])}: {' or '.join(report.step_labels(i + 1))}"
        for i in order
        if belief.raised[i] >= 0.001
    ]
    found = [f"suspects by probability: {'; '.join(told)}"] if told else []
    if belief.none >= 0.001:
        found.append(f"that nothing changed has probability {probability(belief.none)}")
    if report.judgement is not None:
        is_found = report.end.ending is Ending.FOUND
        compared = "without it" if is_found else "the last build against the first"
        found.append(f"confirmation, {compared}: {verdict_headline(report.judgement)}")
        if report.judgement.word is Word.INVALID:
            found += [f"why: {told}" for told in why(report.judgement)]
    # the lines of its log that follow are in the run's folder, and in JSON
    found += [f"left out: {name}: {why.partition(chr(10))[0]}" for name, why in report.skipped]
    runs = f"{count(report.search_runs, 'run')} to search, {report.confirmation_runs} to confirm"
    return [*found, *report.as_found, runs, MONOTONE]


def next_steps(report: BisectReport) -> list[str]:
    """Return what to do now."""
    if report.end.ending is Ending.FOUND:
        labels = report.step_labels(report.end.culprit or report.belief.best)
        merges = [label for label in labels if label.endswith(" (merge)")]
        if merges:
            return [
                f"{merges[0]}: bisect the branch that it brought in, with its ends as good and bad"
            ]
    if report.judgement is not None and report.is_open:
        return _after_no_confirmation(report, report.judgement)
    if report.end.ending is Ending.FOUND:
        return []
    return {
        Ending.NO_CHANGE: [_after_no_change(report)],
        Ending.REVERSED: ["look for the change that mends it with `fleetctl minimize`"],
        Ending.OUT_OF_RUNS: ["raise `max_runs`, or the sessions of a run, and search again"],
    }[report.end.ending]


def _after_no_confirmation(report: BisectReport, judgement: Judgement) -> list[str]:
    if judgement.word is Word.INVALID:
        return what_next(judgement)
    if report.end.ending is Ending.FOUND:
        return [
            "raise `confirm_runs` and search again: the suspect is likely, its effect is not shown"
        ]
    return [
        "look at the runs of each end: where some boots have the fault and others don't, more"
        " runs help (`confirm_runs`, `max_runs`), more sessions don't"
    ]


def _after_no_change(report: BisectReport) -> str:
    """Return what to do where both ends are alike: without the fault, or both with it."""
    ends = [rate for rate in report.rates if rate.point in (0, len(report.points) - 1)]
    rate = sum(end.bad for end in ends) / max(sum(end.sessions for end in ends), 1)
    if rate >= report.design.worlds.rates.smallest:
        return "the first build has the fault, too: begin the list with one that is known without"
    return "check that the workload reproduces the fault on the last build"


def render(report: BisectReport) -> str:
    """Return the bisection as plain text; ends with a line feed."""
    about = [f"hypothesis: {report.hypothesis}"] if report.hypothesis else []
    about += [line for told in about_metric(report.metric) for line in wrapped(told)]
    head = [f"{report.name} {report.run_id}".rstrip(), *about, ""]
    sections = [
        [*head, *wrapped(headline(report))],
        bullets(notes(report)),
        section(rates_table(report)),
        bullets(f"next: {step}" for step in next_steps(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _verdict(report: BisectReport) -> str:
    """Return the verdict in one word; what its confirmation did not uphold was not found."""
    if report.is_open:
        return "suspect" if report.end.ending is Ending.FOUND else "inconclusive"
    return str(report.end.ending)


def as_json(report: BisectReport) -> dict[str, Any]:
    """Return the bisection as plain values, unrounded."""
    culprit = report.end.culprit
    return {
        "schema": SCHEMA,
        "run": report.run_id,
        "name": report.name,
        "metric": report.metric,
        "verdict": _verdict(report),
        "sentence": headline(report),
        "culprit": [] if culprit is None else list(report.step_labels(culprit)),
        "probability": None if culprit is None else report.belief.raised[culprit - 1],
        "confirmation": None if report.judgement is None else str(report.judgement.word),
        "confirmed": report.is_confirmed,
        "credible_set": list(suspects(report)),
        "belief": {
            "steps": [
                {"changes": list(report.step_labels(step)), "raised": raised, "lowered": lowered}
                for step, (raised, lowered) in enumerate(
                    zip(report.belief.raised, report.belief.lowered, strict=True), start=1
                )
            ],
            "none": report.belief.none,
            "good_rate": report.belief.good_rate,
            "bad_rate": report.belief.bad_rate,
        },
        "points": [{**asdict(rate), "changes": report.points[rate.point]} for rate in report.rates],
        "runs": {"search": report.search_runs, "confirmation": report.confirmation_runs},
        "left_out": [{"build": name, "why": why} for name, why in report.skipped],
        "notes": notes(report),
        "next": next_steps(report),
    }
