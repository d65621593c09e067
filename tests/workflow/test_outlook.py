"""What a planned experiment can see: its own level, and what A/A runs of its kind showed."""

from pathlib import Path

import pytest

from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import AaRecord
from fleetctl.report.power import render
from fleetctl.spec.experiment import Experiment, Head, Trials
from fleetctl.store.history import History
from fleetctl.workflow.outlook import power_of
from fleetctl.workflow.workloads import digest_of


def experiment(**trials) -> Experiment:
    return Experiment(experiment=Head(name="e", target="t"), trials=Trials(**trials))


def remembered(root: Path, bad, *, host_class="h200", workload=None) -> History:
    history = History(root)
    workload = workload or digest_of(experiment().workload)
    counts = arm("control", bad, [40] * len(bad))
    history.add_aa(AaRecord("monday", host_class, workload, counts, minutes_per_run=4.0))
    return history


def test_without_history_sessions_are_assumed_independent_and_no_time_is_told(tmp_path):
    found = power_of(experiment(runs=3), {"h200"}, 0.15, History(tmp_path))

    assert (found.assumed.rho, found.assumed.history) == (0.0, None)
    assert found.reach.host_minutes is None
    assert found.only_a_complete_fix
    assert "can confirm a complete fix and little else" in render(found)


def test_a_a_runs_of_this_host_class_and_workload_lend_dispersion_and_time(tmp_path):
    history = remembered(tmp_path, [1, 9, 3, 11])

    found = power_of(experiment(runs=3), {"h200"}, 0.15, history)

    assert found.assumed.rho > 0.02
    assert found.reach.host_minutes == pytest.approx(24.0)
    assert "A/A history with 3 df: monday" in render(found)
    assert "24 minutes of host time" in render(found)


def test_the_users_own_minutes_go_before_what_runs_took(tmp_path):
    history = remembered(tmp_path, [1, 9, 3, 11])

    found = power_of(experiment(runs=3), {"h200"}, 0.15, history, minutes=10.0)

    assert found.reach.host_minutes == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("other", "classes"),
    [
        ({"host_class": "a100"}, {"h200"}),
        ({"workload": "v"}, {"h200"}),
        ({}, {"h200", "a100"}),
    ],
)
def test_runs_of_another_kind_say_nothing(tmp_path, other, classes):
    history = remembered(tmp_path, [1, 9, 3, 11], **other)

    found = power_of(experiment(runs=3), classes, 0.15, history)

    assert (found.assumed.history, found.reach.host_minutes) == (None, None)


def test_declared_looks_lower_the_level_of_the_end(tmp_path):
    looking = experiment(runs=8, stop="sequential", looks=(4, 6))

    found = power_of(looking, {"h200"}, 0.15, History(tmp_path))

    assert found.assumed.alpha == pytest.approx(0.0440, abs=1e-4)
