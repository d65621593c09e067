"""A report as plain JSON values, unrounded, with a schema version."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fleetctl.analysis.counts import Run
from fleetctl.analysis.judgement import ArmEstimate, Judgement, Numbers
from fleetctl.report.document import SCHEMA, Report, TrialLine
from fleetctl.report.sentences import beside, headline, what_next, why


def as_json(report: Report) -> dict[str, Any]:
    """Return the report; every number can be traced to the trials listed in it."""
    judgement = report.judgement
    return {
        "schema": SCHEMA,
        "name": report.name,
        "hypothesis": report.hypothesis,
        "run_id": report.run_id,
        "sentence": headline(judgement),
        "beside": beside(judgement),
        "why": why(judgement),
        "next": what_next(judgement),
        **judgement_json(judgement),
        "if_sessions_were_independent": None
        if report.sessions is None
        else report.sessions._asdict(),
        "differences": None
        if report.differences is None
        else [difference._asdict() for difference in report.differences],
        "trials": [_trial(line) for line in report.trials],
        "notes": list(report.notes),
    }


def judgement_json(judgement: Judgement) -> dict[str, Any]:
    """Return the verdict and its numbers."""
    history = judgement.history
    return {
        "verdict": str(judgement.word),
        "reason": judgement.reason,
        "metric": judgement.design.metric,
        "flags": [str(flag) for flag in judgement.flags],
        "elimination_refuted": "elimination_refuted" in judgement.flags,
        "control": _arm(judgement.control),
        "treatment": _arm(judgement.treatment),
        **_numbers(judgement.numbers),
        "checks": [asdict(check) for check in judgement.checks],
        "design": asdict(judgement.design),
        "history": None if history is None else asdict(history),
        "observers": list(judgement.observers),
    }


def _arm(arm: ArmEstimate) -> dict[str, Any]:
    counts = arm.counts
    return {
        "name": counts.name,
        "bad": counts.bad,
        "sessions": counts.sessions,
        "infra": counts.infra,
        "runs": len(counts.runs),
        "clusters": len(counts.clusters),
        "rate": counts.rate,
        "ci95": None if arm.adjusted is None else list(arm.adjusted),
        "ci95_if_sessions_were_independent": list(arm.exact),
        "lower95": arm.lower95,
        "upper95": arm.upper95,
    }


def _numbers(numbers: Numbers | None) -> dict[str, Any]:
    if numbers is None:
        return dict.fromkeys(
            ("comparison", "elimination", "outlook", "more_runs_per_arm", "margin", "evalue")
        )
    return {
        "comparison": asdict(numbers.comparison),
        "elimination": asdict(numbers.elimination),
        "outlook": asdict(numbers.outlook),
        "more_runs_per_arm": numbers.outlook.more_runs,
        "margin": numbers.margin,
        "evalue": numbers.evalue,
    }


def _trial(line: TrialLine) -> dict[str, Any]:
    return {
        "arm": line.arm,
        **_run(line.run),
        "line": line.line,
        "classes": dict(line.classes),
        "invalid_because": list(line.invalid_because),
    }


def _run(run: Run) -> dict[str, Any]:
    value = asdict(run)
    value["block"] = None if run.block is None else run.block.name
    return value
