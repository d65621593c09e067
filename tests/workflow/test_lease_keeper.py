"""A lease that ended before its time: who ended it is said, and only our own changes go back."""

from __future__ import annotations

import threading

import pytest

from fleetctl.errors import ExitCode, HostUnreachable, LeaseHeld
from fleetctl.plan.planner import Plan
from fleetctl.workflow.lease_keeper import LeaseKeeper
from tests.fakes.leaving_host import LeavingHost

NOTHING = Plan("a", (), ())


@pytest.fixture
def host():
    return LeavingHost()


def held(host, *, length_s: float = 60.0) -> LeaseKeeper:
    return LeaseKeeper(
        host, run_id="r", holder="ann@desk", purpose="p", length_s=length_s, elapsed=lambda: 0.0
    )


def away_and_unlocked(host) -> None:
    """Lose a host, on which somebody else ends the lease, and reach it again."""
    host.leave(restores_itself=False)
    host.unlock(host.lease, by="bob@lap")
    host.silent = False


def test_a_lease_that_was_unlocked_while_we_were_away_is_not_said_to_have_run_out(host):
    with held(host) as keeper:
        keeper.switch(NOTHING, within=())
        lease = keeper.request.id
        away_and_unlocked(host)

        with pytest.raises(LeaseHeld, match="bob@lap unlocked a") as told:
            keeper.regain()

    assert f"lease {lease} did not run out" in told.value.why
    assert "at 1970-01-01 00:00:00 UTC" in told.value.why
    assert "bob@lap" in told.value.next_step
    assert host.said.count("acquire") == 1  # what somebody ended is not taken again
    assert host.changes == {}


@pytest.mark.parametrize(
    ("taken_by", "code"), [("", ExitCode.REFUSED), ("bob@lap", ExitCode.FAILED_RESTORED)]
)
def test_whoever_works_on_an_unlocked_host_by_now_says_how_it_is(host, taken_by, code):
    with held(host) as keeper:
        away_and_unlocked(host)
        host.taken_by = taken_by

        with pytest.raises(LeaseHeld, match="unlocked") as told:
            keeper.regain()

    assert told.value.exit_code is code


def test_our_own_lease_that_is_still_ending_is_not_taken_for_somebody_s(host):
    with held(host) as keeper:
        host.ending = host.lease
        away_and_unlocked(host)

        with pytest.raises(LeaseHeld, match="unlocked") as told:
            keeper.regain()

    assert told.value.exit_code is ExitCode.REFUSED


def test_a_lease_that_ran_out_while_we_were_away_is_blamed_on_nobody(host):
    with held(host) as keeper:
        before = keeper.request.id
        host.leave()
        host.silent = False

        keeper.regain()

        assert host.lease == keeper.request.id != before


def lost_lease(host) -> LeaseHeld:
    """Return what is said of a lease that a renewal finds gone, the connection being sound."""
    with held(host, length_s=1.0) as keeper:
        waiting = threading.Event()
        host.unlock(host.lease, by="bob@lap")
        while not keeper.is_disturbed:
            waiting.wait(0.01)
        with pytest.raises(LeaseHeld) as told:
            keeper.check()
        return told.value


def test_a_holder_who_is_there_is_told_who_unlocked_too(host):
    assert str(lost_lease(host)).startswith("bob@lap unlocked a: at ")


def test_where_nobody_can_say_who_ended_a_lease_the_host_s_own_words_stay(host):
    def silent(_lease):
        raise HostUnreachable("cannot reach a", why="", next_step="")

    host.unlocked = silent

    assert lost_lease(host).what == "the lease is gone"


def taken_over(host, _keeper) -> None:
    """Be away until the lease has ended and a copy of the very run works on the host."""
    host.leave()
    host.silent = False
    host.changes["the copy's"] = "the copy's lease"


def taken_over_after_a_commit(host, keeper) -> None:
    """Commit, take that back, and meet a copy that had rolled back and changed anew."""
    keeper.commit(host)
    keeper.take_back()
    host.changes = {"the copy's": "the copy's lease"}


@pytest.mark.parametrize("happens", [taken_over, taken_over_after_a_commit])
def test_a_copy_of_the_run_that_took_over_keeps_what_it_has_changed(host, happens):
    with held(host) as keeper:
        keeper.switch(NOTHING, within=())
        happens(host, keeper)

    assert host.changes == {"the copy's": "the copy's lease"}


def test_everything_that_we_left_open_goes_back_newest_first(host):
    restored = []
    with held(host) as keeper:
        keeper.switch(NOTHING, within=())
        keeper.switch(NOTHING, within=())
        ours = list(keeper._begun)
        host.leave(restores_itself=False)
        # the host has dropped the lease, and both changes are open still
        host.silent, host.lease = False, None
        host.changes = dict.fromkeys(ours, "")
        host.restore = lambda *, transaction: restored.append(transaction)

    assert restored == ours[::-1]
