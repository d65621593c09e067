"""What a planned experiment can see, by its own design and by what earlier runs showed."""

from __future__ import annotations

from collections.abc import Collection

from fleetctl.analysis.evidence import level_of_look
from fleetctl.analysis.history import minutes_per_run, pool
from fleetctl.analysis.power import Assumed, PowerTable, power_table
from fleetctl.analysis.qbf import correlation
from fleetctl.spec.experiment import Experiment
from fleetctl.store.history import History
from fleetctl.workflow.facts import design_of
from fleetctl.workflow.workloads import digest_of


def power_of(
    experiment: Experiment,
    host_classes: Collection[str],
    baseline: float,
    history: History,
    minutes: float | None = None,
) -> PowerTable:
    """Return the power of an experiment; asks no host.

    Dispersion and time per run come from A/A runs of the same host class and workload, where
    there are any. The level is that of the planned end, which earlier looks lower.

    Args:
        experiment: what was declared.
        host_classes: of the hosts it runs on; history is used where there is just one.
        baseline: expected rate of the control.
        history: what earlier runs say.
        minutes: host time of one run; None takes what A/A runs took.
    """
    design, sessions = design_of(experiment), experiment.workload.sessions
    stored = None
    if len(host_classes) == 1:
        (host_class,) = host_classes
        workload, records = digest_of(experiment.workload), history.aa_records()
        stored = pool(
            records, host_class=host_class, workload_sha256=workload, metric=design.metric
        )
        minutes = minutes or minutes_per_run(
            records, host_class=host_class, workload_sha256=workload
        )
    assumed = Assumed(
        sessions=sessions,
        rho=0.0 if stored is None else correlation(stored.phi, [sessions]),
        alpha=level_of_look(experiment.trials.runs, design) or design.alpha,
        history=stored,
        metric=design.metric,
    )
    return power_table(baseline, assumed, runs=experiment.trials.runs, minutes_per_run=minutes)
