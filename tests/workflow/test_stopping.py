"""Whoever waits hears Ctrl-C at once."""

import threading
import time

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import Interrupted
from fleetctl.workflow.stopping import Holding, Stop, StoppableClock, after_a_stop


def test_a_long_sleep_ends_when_an_end_is_asked_for():
    stop = Stop()
    clock = StoppableClock(SystemClock(), stop)
    threading.Timer(0.05, stop.ask, ["signal SIGINT"]).start()
    began_s = time.monotonic()

    with pytest.raises(Interrupted, match="SIGINT"):
        clock.sleep(60.0)
    assert time.monotonic() - began_s < 30


def test_the_first_reason_is_kept():
    stop = Stop()
    stop.ask("first")
    stop.ask("second")

    with pytest.raises(Interrupted, match="first"):
        stop.check()


@pytest.mark.parametrize("kind", ["experiment", "matrix", "aa"])
def test_who_stops_a_run_is_told_a_command_that_can_be_pasted(kind):
    told = after_a_stop(kind, "run-1")

    assert " run-1`" in told
    assert ("resume" in told) == (kind != "aa")


@pytest.mark.parametrize("kind", ["experiment", "matrix", "bisect", "aa"])
def test_who_leaves_hosts_behind_is_told_what_to_type_for_each_of_them(kind):
    told = Holding(kind, "r1", ("a", "b")).leaving()

    assert "`fleetctl status --host a --host b` says when" in told[0]
    assert told[1] == "at once: `fleetctl rollback r1 --host a --host b`"
    assert told[2] == after_a_stop(kind, "r1")


def test_hosts_are_known_as_long_as_they_are_held_also_when_several_sites_hold_some():
    stop = Stop()
    assert stop.holding is None
    with stop.holds("matrix", "r1", "a"):
        with stop.holds("matrix", "r1", "b"):
            assert stop.holding.hosts == ("a", "b")
        assert stop.holding.hosts == ("a",)

    assert stop.holding.leaving() == ["it holds no host; `fleetctl resume r1` goes on"]
