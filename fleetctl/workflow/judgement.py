"""From the facts of trials to a judgement; reads no run folder and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.guards import GuardFacts
from fleetctl.analysis.history import Dispersion, pool
from fleetctl.analysis.judgement import Judgement
from fleetctl.analysis.verdict import judge
from fleetctl.spec.another_day import History as ControlHistory
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.metric import Metric
from fleetctl.store.history import History
from fleetctl.workflow.facts import (
    ARMS,
    TrialFacts,
    arm_counts,
    design_of,
    guard_facts,
    order_deviation,
)


def judge_trials(
    experiment: Experiment,
    ordered: Sequence[TrialFacts],
    history: History,
    planned: Mapping[str, str],
) -> tuple[Judgement, GuardFacts]:
    """Return the judgement of trials in time order, with the guards it was made under.

    A planned trial that was made and says nothing (all its sessions were lost) was given up: what
    the others say is the planned end, and no undeclared look.

    Args:
        experiment: what was declared.
        ordered: the trials.
        history: what earlier runs say about dispersion and observers.
        planned: the planned order on each site, such as ABBA; empty where nobody recorded it.
    """
    is_over = bool(planned) and len(ordered) >= sum(map(len, planned.values()))
    guards = guard_facts(
        experiment,
        ordered,
        given_up_runs=experiment.trials.runs - usable_runs(experiment, ordered) if is_over else 0,
        perturbing=history.perturbing_observers(),
        deviation=order_deviation(planned, ordered),
    )
    metric = experiment.verdict.metric
    control = arm_counts(ordered, "control", metric)
    if experiment.control.history is not None:
        control = _historical(experiment.control.history, metric)
        guards = replace(guards, historical_control=True)
    judgement = judge(
        control,
        arm_counts(ordered, "treatment", metric),
        design=design_of(experiment),
        guards=guards,
        history=matching_dispersion(history, ordered, metric),
    )
    return judgement, guards


def usable_runs(experiment: Experiment, facts: Sequence[TrialFacts]) -> int:
    """Return the runs of the smaller arm that say anything: what looks are declared in."""
    arms = ARMS if experiment.control.history is None else ("treatment",)
    return min(sum(fact.arm == arm and fact.counted > 0 for fact in facts) for arm in arms)


def matching_dispersion(
    history: History, facts: Sequence[TrialFacts], metric: Metric
) -> Dispersion | None:
    """Return the dispersion of stored A/A runs of the same host class and workload."""
    classes = {(fact.host_class, fact.workload_sha256) for fact in facts}
    if len(classes) != 1:
        return None
    ((host_class, workload),) = classes
    return pool(
        history.aa_records(), host_class=host_class, workload_sha256=workload, metric=metric
    )


def _historical(control: ControlHistory, metric: Metric) -> ArmCounts:
    run = Run(control.bad(metric), control.sessions, trial="history")
    return ArmCounts("control", (run,))
