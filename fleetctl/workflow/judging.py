"""From a run's trials to its verdict and report, also later from the folder alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.analysis.guards import GuardFacts
from fleetctl.analysis.judgement import Judgement
from fleetctl.report.as_json import as_json
from fleetctl.report.document import Report, TrialLine, build
from fleetctl.report.markdown import render as render_markdown
from fleetctl.report.numbers import count
from fleetctl.report.terminal import render as render_terminal
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.metric import Metric
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.as_found import notes_of
from fleetctl.workflow.experiment import Asked
from fleetctl.workflow.facts import (
    TrialFacts,
    aa_record,
    clock_steps,
    effective_differences,
    in_order,
    not_countable,
    run_of,
    undisturbed,
)
from fleetctl.workflow.judgement import judge_trials
from fleetctl.workflow.looks import ORDER, decided_by


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
    judgement, guards = judge_trials(experiment, ordered, history, planned_order(folder))
    report = build(
        judgement,
        [_line(fact, experiment.verdict.metric, position) for position, fact in enumerate(ordered)],
        differences=effective_differences(ordered, [o.name for o in experiment.observer]),
        name=experiment.name,
        hypothesis=experiment.experiment.hypothesis,
        run_id=folder.run_id,
        notes=(
            *notes,
            *notes_of(folder),
            *_notes_of_looks(folder, experiment),
            *clock_steps(ordered),
            *_notes_of_plans(folder, experiment),
        ),
    )
    write_report(folder, report, judgement)
    _remember(history, experiment, folder, ordered, guards, judgement)
    return Judged(judgement, report)


def planned_order(folder: RunFolder) -> dict[str, str]:
    """Return the order that was planned for each site; empty for a run that recorded none."""
    return dict(folder.read_table(ORDER)) if folder.has(ORDER) else {}


def _notes_of_looks(folder: RunFolder, experiment: Experiment) -> list[str]:
    """Return what a reader must know of a run that ended at a look."""
    names = decided_by(folder)
    if names is None:
        return []
    planned = count(experiment.trials.runs, "planned run")
    notes = [f"ended early: a declared look decided before the {planned} per arm were made"]
    late = [
        trial
        for event in folder.events()
        if event.kind == "trial" and not event.facts.get("again")
        if (trial := str(event.facts.get("trial"))) not in names
    ]
    if late:
        notes.append(f"under way when the look decided, so not counted: {', '.join(late)}")
    return notes


def _notes_of_plans(folder: RunFolder, experiment: Experiment) -> list[str]:
    """Return where each arm kept its compiled kernels on each host, and flags nobody reads."""
    plans = folder.read_json("plan.json") if folder.has("plan.json") else []
    notes = [
        f"compiled kernels of {arm} on {host['host']}: {variable} {place}"
        for site in plans
        for host in site["hosts"]
        for arm, found in host["arms"].items()
        for variable, place in found.get("compiled_kernels", {}).items()
    ]
    notes += dict.fromkeys(
        f"{arm} on {host['host']}: {note}"
        for site in plans
        for host in site["hosts"]
        for arm, found in host["arms"].items()
        for note in found.get("cannot_predict", ())
    )
    shared = f"the arms shared the caches of compiled kernels: {experiment.jit.reason}"
    return [*([shared] if experiment.jit.share else []), *notes]


def write_report(folder: RunFolder, report: Report, judgement: Judgement) -> None:
    """Write the report in every form."""
    text = render_terminal(report)
    folder.write("report.txt", text.encode())
    folder.write("report.md", render_markdown(report).encode())
    found = {"verdict": str(judgement.word), **as_json(report)}
    folder.write("report.json", (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())


def _line(fact: TrialFacts, metric: Metric, position: int) -> TrialLine:
    run = run_of(fact, metric, position)
    void = (*fact.void_because, *not_countable(fact, metric))
    return TrialLine(fact.arm, run, fact.line, dict(fact.counts), void)


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
        history.add_observer(
            guards.sole_observer, str(judgement.word), folder.run_id, experiment.verdict.metric
        )
    sound = undisturbed(facts)
    if guards.differences == () and sound:
        host_class, workload = sound[0].host_class, sound[0].workload_sha256
        history.add_aa(aa_record(folder.run_id, host_class, workload, facts))
