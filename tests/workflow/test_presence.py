"""Hosts that leave: who waits is told at once; who comes back is held anew, the rest is said."""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from fleetctl.errors import (
    ApplyFailed,
    ConnectionLost,
    ExitCode,
    Interrupted,
    LeaseHeld,
    NotProven,
    NotReady,
    NotRestored,
)
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.presence import bring_back_late, come_back, through_absences, watchful
from fleetctl.workflow.stopping import Stop, StoppableClock
from tests.fakes.leaving_host import LeavingHost


@dataclass
class Waits:
    """A clock without time but what is waited; each wait may change the world."""

    now: float = 0.0
    then: list = field(default_factory=list)

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now

    def sleep(self, duration_s: float) -> None:
        self.now += duration_s
        if self.then:
            self.then.pop(0)()


class InstantStop(Stop):
    """A stop whose waits take no time."""

    def __init__(self, clock: Waits) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, duration_s: float) -> None:
        self._clock.sleep(duration_s)
        self.check()


@pytest.fixture
def clock():
    return Waits()


@pytest.fixture
def edges(tmp_path, clock):
    stop = InstantStop(clock)
    talk = SimpleNamespace(lines=[])
    talk.say = talk.lines.append
    return Edges(None, None, StoppableClock(clock, stop), stop, talk, "ann@desk", tmp_path, None)


@pytest.fixture
def host():
    return LeavingHost()


@pytest.fixture
def asleep_s():
    """How long this machine slept; append to it."""
    return [0.0]


@pytest.fixture
def keeper(host, asleep_s):
    made = LeaseKeeper(
        host,
        run_id="r",
        holder="ann@desk",
        purpose="p",
        length_s=60.0,
        elapsed=lambda: asleep_s[-1],
    )
    with made:
        yield made
        host.silent = False


def test_whoever_waits_for_a_host_that_left_is_told(edges, keeper, host):
    watching = watchful(edges, [keeper])
    watching.clock.sleep(1.0)
    assert not watching.stop.is_asked

    host.leave()

    assert watching.stop.is_asked
    assert not edges.stop.is_asked
    with pytest.raises(ConnectionLost, match="connection to a broke"):
        watching.clock.sleep(1.0)


def test_an_operator_s_wish_comes_before_a_lost_host(edges, keeper, host):
    watching = watchful(edges, [keeper])
    host.leave()
    watching.stop.ask("signal SIGINT")

    with pytest.raises(Interrupted, match="SIGINT"):
        watching.stop.check()


def test_a_host_that_answers_again_is_brought_back_and_held_by_a_new_lease(
    edges, clock, keeper, host
):
    before = keeper.request.id
    host.leave()
    clock.then = [lambda: None, lambda: setattr(host, "silent", False)]

    come_back(edges, [keeper], "", 60.0)

    assert host.said[-4:] == ["release", "status", "unlocked", "acquire"]
    assert host.lease == keeper.request.id != before
    assert not keeper.is_disturbed
    keeper.check()


def test_a_host_that_is_rather_too_late_is_not_called_restored(edges, keeper, host):
    host.leave()

    with pytest.raises(NotRestored, match="a did not answer again within 60 s") as failed:
        come_back(edges, [keeper], "`fleetctl resume r`", 60.0)

    assert failed.value.exit_code is ExitCode.FAILED_NOT_RESTORED
    assert "fleetctl resume r" in failed.value.next_step


def test_ctrl_c_ends_the_wait_for_a_host(edges, clock, keeper, host):
    host.leave()
    clock.then = [lambda: edges.stop.ask("signal SIGINT")]

    with pytest.raises(Interrupted):
        come_back(edges, [keeper], "", 60.0)


def test_a_host_that_somebody_took_meanwhile_is_theirs_and_our_change_is_gone(edges, keeper, host):
    host.leave()
    host.silent = False
    host.taken_by = "bob@lap"

    with pytest.raises(LeaseHeld, match="taken while it was away") as failed:
        come_back(edges, [keeper], "", 60.0)

    assert "bob@lap" in failed.value.why
    assert failed.value.exit_code is ExitCode.FAILED_RESTORED


def test_the_other_hosts_of_a_site_go_back_while_one_is_waited_for(edges, clock, keeper, host):
    other = LeavingHost("b")
    with LeaseKeeper(other, run_id="r", holder="h", purpose="p", length_s=60.0) as stayed:
        host.leave()
        clock.then = [lambda: other.said.append("wait"), lambda: setattr(host, "silent", False)]

        come_back(edges, [keeper, stayed], "", 60.0)

        assert other.said[:5] == ["acquire", "release", "unlocked", "acquire", "wait"]


def test_a_machine_that_slept_past_its_lease_was_away(keeper, asleep_s):
    assert not keeper.is_away
    asleep_s.append(61.0)

    assert keeper.is_away
    with pytest.raises(ConnectionLost):
        keeper.check()


def test_a_lease_that_somebody_ended_is_no_absence_however_late_it_is_noticed(host, asleep_s):
    refused = threading.Event()

    def renew(_lease, *, length_s):
        refused.set()
        raise LeaseHeld("the lease is gone", why="unlocked", next_step="")

    host.renew = renew
    with LeaseKeeper(
        host, run_id="r", holder="h", purpose="p", length_s=1.0, elapsed=lambda: asleep_s[-1]
    ) as keeper:
        assert refused.wait(10)
        while not keeper.is_disturbed:
            refused.wait(0.01)
        asleep_s.append(1000.0)

        assert not keeper.is_away
        with pytest.raises(LeaseHeld, match="the lease is gone"):
            keeper.check()


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_host_that_could_not_be_restored_is_waited_for_when_the_run_ends(
    edges, clock, host, comes_back
):
    with LeaseKeeper(host, run_id="r", holder="h", purpose="p", length_s=60.0) as keeper:
        host.leave()
    assert keeper.left is not None
    if comes_back:
        clock.then = [lambda: setattr(host, "silent", False)]
        bring_back_late(edges, [keeper], "", 60.0)
        assert host.said[-2:] == ["release", "status"]
    else:
        with pytest.raises(NotRestored, match="can't be reached to restore it") as failed:
            bring_back_late(edges, [keeper], "`fleetctl resume r`", 60.0)
        assert "within 65 s" in failed.value.why
        assert "fleetctl resume r" in failed.value.next_step


def test_an_operator_who_wants_to_leave_does_not_wait_for_a_silent_host(edges, clock, host):
    with LeaseKeeper(host, run_id="r", holder="h", purpose="p", length_s=60.0) as keeper:
        host.leave()
    edges.stop.ask("signal SIGINT")

    with pytest.raises(NotRestored, match="can't be reached"):
        bring_back_late(edges, [keeper], "", 60.0)
    assert clock.now == 0.0


@pytest.mark.parametrize("kind", [NotProven, NotReady, ApplyFailed])
def test_who_is_unlocked_in_the_middle_of_a_deployment_hears_that_and_not_of_its_traces(
    edges, keeper, host, kind
):
    def deploying(_edges) -> None:
        host.unlock(host.lease, by="bob@lap")
        raise kind("lab-1 does not run what was asked for", why="", next_step="")

    with pytest.raises(LeaseHeld, match="bob@lap unlocked a"):
        through_absences(edges, [keeper], act=deploying, back=None)


@pytest.mark.parametrize("kind", [NotProven, NotReady, ApplyFailed])
def test_a_deployment_that_failed_under_our_lease_is_told_as_it_is(edges, keeper, kind):
    def deploying(_edges) -> None:
        raise kind("it does not run", why="", next_step="")

    with pytest.raises(kind):
        through_absences(edges, [keeper], act=deploying, back=None)
