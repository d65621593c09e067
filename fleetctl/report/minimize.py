"""A minimisation in words: the few changes that are needed, and what that rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetctl.analysis.minimization import (
    Keeps,
    Minimized,
    MinimizeDesign,
    MinimizeEnding,
    Subset,
)
from fleetctl.analysis.rates import clopper_pearson
from fleetctl.errors import ExitCode
from fleetctl.report.metrics import WORDS, about_metric
from fleetctl.report.numbers import count, percent, percents, ratio
from fleetctl.report.tables import Table
from fleetctl.report.terminal import bullets, section, wrapped
from fleetctl.spec.metric import Metric

SCHEMA = "fleetctl.minimize/1"


@dataclass(frozen=True)
class MinimizeReport:
    """The findings of a minimisation.

    Attributes:
        labels: of all changes, in order.
        found: where it ended.
        builds: name, runs, bad and all sessions of every build that was measured.
        runs: of everything together.
        skipped: builds that could not be made or did not start, each with its reason.
        as_found: what every build stood on that is not of this search.
        metric: what is counted.
    """

    name: str
    hypothesis: str
    run_id: str
    labels: tuple[str, ...]
    design: MinimizeDesign
    found: Minimized
    builds: tuple[tuple[str, int, int, int], ...]
    runs: int
    skipped: tuple[tuple[str, str], ...] = ()
    as_found: tuple[str, ...] = ()
    metric: Metric = "corruption"

    def names(self, subset: Subset) -> tuple[str, ...]:
        """Return changes by their labels, in order."""
        return tuple(self.labels[index] for index in sorted(subset))

    @property
    def exit_code(self) -> ExitCode:
        """What a process ends with: 0 for a minimal set."""
        return {
            MinimizeEnding.MINIMAL: ExitCode.OK,
            MinimizeEnding.NO_EFFECT: ExitCode.UNEXPECTED_VERDICT,
            MinimizeEnding.OUT_OF_RUNS: ExitCode.INCONCLUSIVE,
        }[self.found.ending]


def headline(report: MinimizeReport) -> str:
    """Return the answer in one sentence."""
    names = report.names(report.found.subset)
    listed = " + ".join(names)
    if report.found.ending is MinimizeEnding.NO_EFFECT:
        return (
            "NO EFFECT: with all changes and with none the rate is alike, within"
            f" {percent(report.design.worlds.rates.smallest)}."
        )
    if report.found.ending is MinimizeEnding.OUT_OF_RUNS:
        known = f"{listed} keep the effect" if report.found.direction else "no effect is shown yet"
        return f"NOT DECIDED: the runs are spent; {known}, and some of them may not be needed."
    verb = "raises" if report.found.direction > 0 else "lowers"
    if len(names) == 1:
        return f"MINIMAL: {listed} alone {verb} the rate as all {len(report.labels)} changes do."
    verb = verb.removesuffix("s")
    each = "either of the two" if len(names) == 2 else "any one of them"
    needed = f"without {each} the effect is gone"
    if report.found.not_proven_needed:
        open_ones = " + ".join(report.names(report.found.not_proven_needed))
        needed = f"whether it takes {open_ones} could not be decided"
    return (
        f"MINIMAL: {listed} together {verb} the rate as all {len(report.labels)} changes do;"
        f" {needed}."
    )


def notes(report: MinimizeReport) -> list[str]:
    """Return what must be said beside the answer."""
    found = report.found
    told = [*_of_the_set(report), *_of_the_rest(report)] if found.direction else []
    # the lines of its log that follow are in the run's folder, and in JSON
    told += [f"left out: {name}: {why.partition(chr(10))[0]}" for name, why in report.skipped]
    if found.unresolved:
        told.append(f"{count(len(found.unresolved), 'test')} not decided: taken as no effect")
    told += report.as_found
    design = report.design
    told.append(
        f"{count(report.runs, 'run')}, {count(len(found.tests), 'test')}; each test may err with"
        f" {percent(design.error_per_test)}, {design.tests} together with {percent(design.error)}"
    )
    return told


def _of_the_set(report: MinimizeReport) -> list[str]:
    found = report.found
    told = []
    if found.ending is MinimizeEnding.MINIMAL:
        told.append("1-minimal: no single change can be left out; a smaller set may still exist")
    if found.not_proven_needed:
        names = ", ".join(report.names(found.not_proven_needed))
        told.append(f"not shown to be needed, the test without it was not decided: {names}")
    told += [
        f"interaction: {report.labels[first]} with {report.labels[second]}"
        for first, second in found.pairs
    ]
    return told


def _of_the_rest(report: MinimizeReport) -> list[str]:
    found = report.found
    if found.ending is not MinimizeEnding.MINIMAL:
        return []
    told = [
        f"not monotone: {name}, added to the minimal set, ends the effect"
        for name in report.names(found.masking)
    ]
    if not found.masking and len(found.subset) < len(report.labels):
        told.append("monotone as far as seen: no other change, added alone, ends the effect")
    if found.rest_keeps is Keeps.YES:
        told.append("a second cause: all the other changes without these keep the effect, too")
    if found.rest_keeps is Keeps.NO and len(found.subset) < len(report.labels):
        told.append("all the other changes without these do not have the effect")
    return told


def next_steps(report: MinimizeReport) -> list[str]:
    """Return what to do now."""
    if report.found.ending is MinimizeEnding.NO_EFFECT:
        return [_after_no_effect(report)]
    if report.found.ending is MinimizeEnding.OUT_OF_RUNS:
        return ["raise `max_runs`, `tests` or `runs_per_test`, or the sessions of a run"]
    if report.found.rest_keeps is Keeps.YES:
        names = ", ".join(report.names(report.found.subset))
        return [f"minimise again without {names} to find the second cause"]
    return []


def _after_no_effect(report: MinimizeReport) -> str:
    """Return what to do where both ends are alike: without the fault, or both with it."""
    bad = sum(bad for _, _, bad, _ in report.builds)
    sessions = sum(sessions for *_, sessions in report.builds)
    if bad / max(sessions, 1) >= report.design.worlds.rates.smallest:
        return "the fault is there without any of the changes, too: look in what lies below them"
    return "check that the workload reproduces the effect with all changes"


def builds_table(report: MinimizeReport) -> Table:
    """Return the counts of every build that was measured."""
    rows = tuple(
        (name, str(runs), ratio(bad, sessions), percents(clopper_pearson(bad, sessions)))
        for name, runs, bad, sessions in report.builds
    )
    header = ("build", "runs", WORDS[report.metric].bad, "95% CI if sessions were independent")
    return Table("Measured builds", header, rows)


def render(report: MinimizeReport) -> str:
    """Return the minimisation as plain text; ends with a line feed."""
    about = [f"hypothesis: {report.hypothesis}"] if report.hypothesis else []
    about += [line for told in about_metric(report.metric) for line in wrapped(told)]
    head = [f"{report.name} {report.run_id}".rstrip(), *about, ""]
    sections = [
        [*head, *wrapped(headline(report))],
        bullets(notes(report)),
        section(builds_table(report)),
        bullets(f"next: {step}" for step in next_steps(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def as_json(report: MinimizeReport) -> dict[str, Any]:
    """Return the minimisation as plain values, unrounded."""
    found = report.found
    return {
        "schema": SCHEMA,
        "run": report.run_id,
        "name": report.name,
        "metric": report.metric,
        "verdict": str(found.ending),
        "sentence": headline(report),
        "minimal": list(report.names(found.subset)),
        "direction": found.direction,
        "interactions": [[report.labels[a], report.labels[b]] for a, b in found.pairs],
        "masking": list(report.names(found.masking)),
        "rest_keeps": str(found.rest_keeps),
        "not_proven_needed": list(report.names(found.not_proven_needed)),
        "tests": [
            {
                "changes": list(report.names(test.subset)),
                "why": test.why,
                "keeps": str(test.keeps),
                "runs": test.runs,
            }
            for test in found.tests
        ],
        "builds": [
            {"build": name, "runs": runs, "bad": bad, "sessions": sessions}
            for name, runs, bad, sessions in report.builds
        ],
        "runs": report.runs,
        "left_out": [{"build": name, "why": why} for name, why in report.skipped],
        "notes": notes(report),
        "next": next_steps(report),
    }
