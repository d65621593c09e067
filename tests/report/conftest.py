"""Reports to render."""

from __future__ import annotations

import pytest

from fleetctl.analysis.counts import ArmCounts, Run, arm
from fleetctl.analysis.verdict import judge
from fleetctl.report import document
from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.summary import TrialResult


@pytest.fixture
def report_of():
    """Return the report of bare counts, runs of 40."""

    def report(control, treatment, **facts):
        judgement = judge(
            arm("control", control, [40] * len(control)),
            arm("treatment", treatment, [40] * len(treatment)),
            **facts,
        )
        return document.build(judgement)

    return report


@pytest.fixture
def measured():
    """Return a report of real trial results, in the order A B B A, with transcripts."""
    lines, runs = [], {"control": [], "treatment": []}
    story = [("control", 6), ("treatment", 2), ("treatment", 5), ("control", 7)]
    for position, (name, bad) in enumerate(story):
        result = TrialResult(
            kind="toolcall",
            sessions=40,
            counted=39,
            corrupted=bad,
            counts=(
                (OutcomeClass.INFRA, 1),
                (OutcomeClass.LEAK, bad),
                (OutcomeClass.DONE, 39 - bad),
            ),
            invalid_because=("the unit restarted",) if position == 3 else (),
        )
        run = Run(bad, 39, infra=1, trial=f"trials/{position}", position=position, host="gpu-1")
        runs[name].append(run)
        lines.append(document.trial_line(name, run, result))
    judgement = judge(*(ArmCounts(name, tuple(found)) for name, found in runs.items()))
    return document.build(
        judgement,
        list(reversed(lines)),
        name="persistent_logits",
        hypothesis="The buffer is the victim.",
        run_id="20261129-1",
        notes=["process hosts can't show a power cut"],
    )
