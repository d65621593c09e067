"""Whoever waits hears Ctrl-C at once."""

import threading
import time

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import Interrupted
from fleetctl.workflow.stopping import Stop, StoppableClock, after_a_stop


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
