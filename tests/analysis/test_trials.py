"""From trial results to counts and guard facts."""

from dataclasses import replace

import pytest

from fleetctl.analysis.counts import DrawnBlock, Run
from fleetctl.analysis.guards import ArmFacts, Exposure
from fleetctl.analysis.trials import facts_of, run_of
from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.exposure import Exposure as Load
from fleetctl.trial.summary import ClientHealth, TrialResult

LOAD = Load(wall_s=10.0, requests=120, rounds=114, concurrency_s=380.0, completion_tokens=19_000)
RESULT = TrialResult(
    kind="toolcall",
    sessions=40,
    counted=38,
    corrupted=6,
    counts=((OutcomeClass.LEAK, 6), (OutcomeClass.DONE, 32), (OutcomeClass.INFRA, 2)),
    exposure=LOAD,
    client=ClientHealth(1, 0.4, 1.0, 12.0, 30.0),
)


def test_lost_sessions_are_neither_bad_nor_clean():
    block = DrawnBlock("b", 4)

    run = run_of(RESULT, trial="runs/x/1", boot="b1", position=3, block=block, host="gpu-1")

    assert run == Run(6, 38, 2, "runs/x/1", "b1", 3, block, "gpu-1")


def test_the_exposure_is_what_a_session_saw_on_average():
    facts = facts_of([RESULT, RESULT], unproven=())

    assert facts.exposure == Exposure(
        concurrency=pytest.approx(38.0),
        tokens=pytest.approx(500.0),
        rounds=pytest.approx(3.0),
        in_flight_s=pytest.approx(10.0),
    )
    assert facts.planned_sessions == 80
    assert facts.client_lag_p99_ms == 12.0
    assert facts.unproven == ()
    assert facts.missed_triggers is None


def test_a_trial_that_may_not_be_used_is_a_disturbance():
    broken = replace(RESULT, invalid_because=("the unit restarted",))

    assert facts_of([RESULT, broken]).disturbances == ("the unit restarted",)


@pytest.mark.parametrize(
    "unmeasured",
    [replace(RESULT, exposure=Load()), replace(RESULT, counted=0, corrupted=0)],
)
def test_an_exposure_that_was_not_measured_stays_unknown(unmeasured):
    assert facts_of([unmeasured]).exposure == Exposure()


def test_a_program_that_reports_only_counts_leaves_the_rest_unknown():
    counted = replace(RESULT, client=None, exposure=Load())

    assert facts_of([counted]) == ArmFacts(disturbances=(), planned_sessions=40)


def test_servers_that_report_no_tokens_or_no_time_leave_those_unknown():
    bare = replace(RESULT, exposure=replace(LOAD, completion_tokens=0, wall_s=0.0))

    exposure = facts_of([bare]).exposure

    assert exposure.tokens is None
    assert exposure.concurrency is None
    assert exposure.rounds == pytest.approx(3.0)
