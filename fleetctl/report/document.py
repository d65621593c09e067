"""A run's findings as data: the verdict, its numbers, and where each of them comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.analysis.counts import Run
from fleetctl.analysis.effective import Difference
from fleetctl.analysis.judgement import Judgement
from fleetctl.analysis.two_arms import SessionView, session_view
from fleetctl.trial.summary import TrialResult

SCHEMA = "fleetctl.report/1"


@dataclass(frozen=True)
class TrialLine:
    """One trial as the report tells it.

    Attributes:
        arm: "control" or "treatment".
        run: its counts, and where its transcripts lie.
        line: the line people know; empty where only counts are known.
        classes: sessions of every outcome class.
        invalid_because: why it may not be used; empty when it may.
    """

    arm: str
    run: Run
    line: str = ""
    classes: Mapping[str, int] = field(default_factory=dict)
    invalid_because: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything a renderer needs; numbers are not rounded.

    Attributes:
        judgement: the verdict and its numbers.
        sessions: the view that takes sessions as independent; None when an arm is empty.
        trials: every trial, in the order in which they ran where that is known.
        differences: what differs between the arms; None where it was not read back.
        name: the experiment.
        hypothesis: why it was run.
        run_id: the run's folder.
        notes: further sentences, such as what the lab can't show.
    """

    judgement: Judgement
    sessions: SessionView | None
    trials: tuple[TrialLine, ...]
    differences: tuple[Difference, ...] | None = None
    name: str = ""
    hypothesis: str = ""
    run_id: str = ""
    notes: tuple[str, ...] = ()


def build(
    judgement: Judgement,
    trials: Sequence[TrialLine] = (),
    *,
    differences: tuple[Difference, ...] | None = None,
    name: str = "",
    hypothesis: str = "",
    run_id: str = "",
    notes: Sequence[str] = (),
) -> Report:
    """Return the report of a judgement; without trial lines its bare counts are told."""
    return Report(
        judgement=judgement,
        sessions=session_view(judgement.control.counts, judgement.treatment.counts),
        trials=tuple(sorted(trials or bare_lines(judgement), key=_place)),
        differences=differences,
        name=name,
        hypothesis=hypothesis,
        run_id=run_id,
        notes=tuple(notes),
    )


def _place(line: TrialLine) -> tuple[str, bool, int]:
    """Order by host and position; trials without one keep the order in which they were given."""
    position = line.run.position
    return (line.run.host, position is None, position or 0)


def bare_lines(judgement: Judgement) -> tuple[TrialLine, ...]:
    """Return a line for each run of which only the counts are known."""
    arms = (judgement.control.counts, judgement.treatment.counts)
    return tuple(TrialLine(arm.name, run) for arm in arms for run in arm.runs)


def trial_line(arm: str, run: Run, result: TrialResult) -> TrialLine:
    """Return the line of a measured trial."""
    return TrialLine(
        arm=arm,
        run=run,
        line=result.line(),
        classes={str(outcome): number for outcome, number in result.counts},
        invalid_because=result.invalid_because,
    )
