"""From a run's trials to its verdict and report, also later from the folder alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.guards import GuardFacts
from fleetctl.analysis.history import AaRecord, Dispersion, pool
from fleetctl.analysis.judgement import Judgement
from fleetctl.analysis.verdict import judge
from fleetctl.report.as_json import as_json
from fleetctl.report.document import Report, TrialLine, build
from fleetctl.report.markdown import render as render_markdown
from fleetctl.report.terminal import render as render_terminal
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.experiment import History as ControlHistory
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.experiment import Asked
from fleetctl.workflow.facts import (
    TrialFacts,
    arm_counts,
    design_of,
    effective_differences,
    guard_facts,
    in_order,
)


@dataclass(frozen=True)
class Judged:
    """A run's verdict with its report."""

    judgement: Judgement
    report: Report


def judge_run(
    folder: RunFolder,
    asked: Asked,
    facts: Sequence[TrialFacts],
    history: History,
    notes: Sequence[str],
) -> Judged:
    """Judge a run, and write and return its report."""
    experiment = asked.experiment
    ordered = in_order(facts)
    guards = guard_facts(
        experiment,
        ordered,
        given_up_runs=0,
        perturbing=history.perturbing_observers(),
    )
    control = arm_counts(ordered, "control")
    if asked.arms.history is not None:
        control, guards = _historical(asked.arms.history, guards)
    judgement = judge(
        control,
        arm_counts(ordered, "treatment"),
        design=design_of(experiment),
        guards=guards,
        history=matching_dispersion(history, ordered),
    )
    report = build(
        judgement,
        [_line(fact, position) for position, fact in enumerate(ordered)],
        differences=effective_differences(ordered, [o.name for o in experiment.observer]),
        name=experiment.name,
        hypothesis=experiment.experiment.hypothesis,
        run_id=folder.run_id,
        notes=notes,
    )
    write_report(folder, report, judgement)
    _remember(history, experiment, folder, ordered, guards, judgement)
    return Judged(judgement, report)


def matching_dispersion(history: History, facts: Sequence[TrialFacts]) -> Dispersion | None:
    """Return the dispersion of stored A/A runs of the same host class and workload."""
    classes = {(fact.host_class, fact.workload_sha256) for fact in facts}
    if len(classes) != 1:
        return None
    ((host_class, workload),) = classes
    return pool(history.aa_records(), host_class=host_class, workload_sha256=workload)


def write_report(folder: RunFolder, report: Report, judgement: Judgement) -> None:
    """Write the report in every form."""
    text = render_terminal(report)
    folder.write("report.txt", text.encode())
    folder.write("report.md", render_markdown(report).encode())
    found = {"verdict": str(judgement.word), **as_json(report)}
    folder.write("report.json", (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())


def _historical(control: ControlHistory, guards: GuardFacts) -> tuple[ArmCounts, GuardFacts]:
    run = Run(control.corrupted, control.sessions, trial="history")
    return ArmCounts("control", (run,)), replace(guards, historical_control=True)


def _line(fact: TrialFacts, position: int) -> TrialLine:
    run = Run(
        fact.corrupted,
        fact.counted,
        infra=fact.infra,
        trial=fact.trial,
        boot=fact.boot,
        position=position,
        host=fact.host,
    )
    return TrialLine(fact.arm, run, fact.line, dict(fact.counts), fact.void_because)


def _remember(
    history: History,
    experiment: Experiment,
    folder: RunFolder,
    facts: Sequence[TrialFacts],
    guards: GuardFacts,
    judgement: Judgement,
) -> None:
    """Keep what later runs can learn from this one."""
    if guards.sole_observer is not None:
        history.add_observer(guards.sole_observer, str(judgement.word), folder.run_id)
    if guards.differences == () and facts:
        counts = arm_counts([replace(fact, arm="control") for fact in facts], "control")
        record = AaRecord(folder.run_id, facts[0].host_class, facts[0].workload_sha256, counts)
        history.add_aa(record)
