"""How an attempt ends: counted, given back, or over."""

import pytest

from fleetctl.errors import (
    ApplyFailed,
    ConnectionLost,
    DriftError,
    Interrupted,
    NotProven,
    NotReady,
    NotRestored,
    StoreError,
)
from fleetctl.store.campaign import RunPhase
from fleetctl.store.campaign_sqlite import SqliteQueue
from fleetctl.workflow.campaign_rules import attempt
from tests.contracts.cell_queue import cell_run, taken
from tests.workflow.matrices import result_of


@pytest.fixture
def queue(tmp_path):
    with SqliteQueue(tmp_path / "campaign.sqlite") as made:
        made.put([cell_run(0)])
        yield made


def fails(error):
    def measure():
        raise error

    return measure


def ends(queue, *, most, measure):
    """Try until the run is over; return how many attempts that took."""
    for number in range(1, most + 2):
        run = queue.take("s", block="gpu=h200", worker="w")
        if run is None:
            return number - 1
        measure(run)
    raise AssertionError("it never ends")


def test_a_measured_run_is_counted(queue):
    run = taken(queue)

    found = attempt(queue, run, lambda: result_of(run, "s", bad=3))

    (kept,) = queue.results()
    assert found.id == kept.id == run.id
    assert kept.facts["corrupted"] == 3


@pytest.mark.parametrize("kind", [NotReady, NotProven, ApplyFailed])
def test_a_cell_that_fails_twice_is_over_with_its_reason(queue, kind):
    def measure(run):
        with pytest.raises(kind):
            attempt(queue, run, fails(kind("no answer", why="port closed", next_step="")))

    assert ends(queue, most=5, measure=measure) == 2
    (state,) = queue.state().in_phase(RunPhase.FAILED)
    assert state.why == "no answer: port closed"


@pytest.mark.parametrize("kind", [ConnectionLost, DriftError])
def test_a_host_that_fails_gives_its_run_back_for_long(queue, kind):
    def measure(run):
        with pytest.raises(kind):
            attempt(queue, run, fails(kind("gone", why="", next_step="")))

    assert ends(queue, most=9, measure=measure) == 5


@pytest.mark.parametrize("kind", [Interrupted, NotRestored, StoreError])
def test_what_is_nobody_s_fault_gives_the_run_back_without_a_count(queue, kind):
    run = taken(queue)

    with pytest.raises(kind):
        attempt(queue, run, fails(kind("stopped", why="", next_step="")))

    (state,) = queue.state().in_phase(RunPhase.WAITING)
    assert state.run.faults == 0


def test_a_bug_gives_the_run_back_too(queue):
    with pytest.raises(ZeroDivisionError):
        attempt(queue, taken(queue), lambda: 1 / 0)

    assert queue.state().in_phase(RunPhase.WAITING)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"disturbances": ("the unit was restarted",)},
        {"void_because": ("the client was too slow",)},
        {"counted": 0},
    ],
)
def test_a_spoilt_trial_does_not_count_and_is_made_again_three_times_at_most(queue, spoilt):
    def measure(run):
        assert attempt(queue, run, lambda: result_of(run, "s", **spoilt)) is None

    assert ends(queue, most=9, measure=measure) == 3
    assert queue.results() == ()
    assert queue.state().in_phase(RunPhase.FAILED)


def test_a_result_that_comes_too_late_is_not_counted(queue):
    run = taken(queue)
    queue.give_back(run, "presumed dead", fault=False)
    again = taken(queue)

    assert attempt(queue, run, lambda: result_of(run, "s")) is None
    assert attempt(queue, again, lambda: result_of(again, "t")) is not None
    assert [result.site for result in queue.results()] == ["t"]
