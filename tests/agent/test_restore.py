"""Bringing back: conflicts are left to people, all else comes back, however often one asks."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from pathlib import Path

import pytest

from fleetctl.agent import holding, transactions
from fleetctl.agent.holding import Expiry
from fleetctl.agent.leases import Leases
from fleetctl.agent.manner import Manner
from fleetctl.errors import ApplyFailed, InputError, LeaseHeld
from fleetctl.transaction.failure import FilesInConflict, LeaseTaken, NotBack
from fleetctl.transaction.step import WriteFile
from tests.host.processes import wait_until


def test_a_file_that_somebody_changed_is_left_and_everything_else_comes_back(ground):
    before = ground.look()
    ground.apply()
    ground.script.write_bytes(b"#!/bin/bash\nexport FLAG=2 # mine\n")

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="tx")

    (conflict,) = left.value.conflicts
    assert conflict.path == str(ground.script)
    assert "-export FLAG=1" in conflict.diff
    assert "+export FLAG=2 # mine" in conflict.diff
    assert Path(conflict.before_object).read_bytes() == b"#!/bin/bash\nexport FLAG=0\n"
    after = ground.look()
    assert after.pop("tree/serve.sh")[3] == b"#!/bin/bash\nexport FLAG=2 # mine\n"
    del before["tree/serve.sh"]
    assert after == before


def test_a_lost_before_image_is_named_and_not_taken_for_the_file_itself(ground):
    ground.apply()
    objects = [path for path in ground.state.glob("objects/*") if b"FLAG=0" in path.read_bytes()]
    (lost,) = objects
    content = lost.read_bytes()
    lost.unlink()

    with pytest.raises(NotBack) as left:
        ground.agent.restore(transaction="tx")

    assert f"{ground.script}: No such file or directory ({lost})" in left.value.why
    assert b"FLAG=1" in ground.script.read_bytes()
    lost.write_bytes(content)  # somebody found it again
    ground.agent.restore(transaction="tx")
    assert ground.script.read_bytes() == content


def test_a_conflict_is_over_when_force_overwrites_it(ground):
    before = ground.look()
    ground.apply()
    ground.script.write_bytes(b"mine")
    with pytest.raises(FilesInConflict):
        ground.agent.restore(transaction="tx")
    assert [t.state for t in ground.agent.status().transactions] == ["conflict"]

    ground.agent.restore(transaction="tx", force=True)

    assert ground.look() == before
    assert ground.agent.status().transactions == ()


def test_a_conflict_is_over_when_somebody_settles_for_what_is_there(ground):
    ground.apply()
    ground.script.write_bytes(b"mine")
    with pytest.raises(FilesInConflict):
        ground.agent.restore(transaction="tx")

    ground.agent.settle("tx")

    assert ground.script.read_bytes() == b"mine"
    assert ground.agent.status().transactions == ()


def test_nobody_builds_on_a_conflict_before_it_is_decided(ground):
    ground.apply()
    ground.script.write_bytes(b"mine")
    with pytest.raises(FilesInConflict):
        ground.agent.restore(transaction="tx")

    with pytest.raises(LeaseTaken, match="conflict"):
        ground.agent.acquire(ground.lease())


TOLD = {
    "deleted": "-VALUE = 'new'",
    "directory": "is not a regular file",
    "symlink": "is not a regular file",
    "fifo": "is not a regular file",
    "hard link": "has 2 hard links",
}


@pytest.mark.parametrize("deed", TOLD)
def test_whatever_takes_the_place_of_a_file_is_a_conflict_and_told_as_what_it_is(ground, deed):
    ground.apply()
    path = ground.module
    path.unlink()
    if deed == "directory":
        path.mkdir()
    elif deed == "symlink":
        path.symlink_to("/etc/passwd")
    elif deed == "fifo":
        os.mkfifo(path)
    elif deed == "hard link":
        os.link(ground.tree / "untouched", path)

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="tx")

    (conflict,) = left.value.conflicts
    assert conflict.path == str(path)
    assert TOLD[deed] in conflict.diff


def test_a_file_that_somebody_put_into_a_new_directory_keeps_the_directory(ground):
    ground.apply()
    theirs = ground.tree / "fresh" / "deep" / "notes"
    theirs.write_bytes(b"mine")

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="tx")

    assert {conflict.path for conflict in left.value.conflicts} == {
        str(theirs.parent),
        str(theirs.parent.parent),
    }
    assert theirs.read_bytes() == b"mine"
    assert not (theirs.parent / "module.py").exists()


def test_a_file_set_back_by_hand_gets_its_old_time_and_is_no_conflict(ground):
    before = ground.look()
    ground.apply()
    ground.module.write_bytes(b"VALUE = 'old'\n")
    ground.module.chmod(0o777)

    ground.agent.restore(transaction="tx")

    assert ground.look() == before


def test_restoring_twice_changes_nothing_the_second_time(ground):
    ground.apply()
    ground.agent.restore(transaction="tx")
    inode, changed = ground.module.stat().st_ino, ground.module.stat().st_ctime_ns

    again = ground.agent.restore(transaction="tx")

    assert again.transactions == ("tx",)
    assert (ground.module.stat().st_ino, ground.module.stat().st_ctime_ns) == (inode, changed)


def test_what_the_host_does_not_hold_cannot_be_restored(ground):
    with pytest.raises(InputError, match="holds nothing"):
        ground.agent.restore(transaction="unheard-of")
    with pytest.raises(InputError, match="holds nothing"):
        ground.agent.restore(run_id="unheard-of")


def test_restoring_everything_while_somebody_works_is_refused_by_name(ground):
    ground.apply()

    with pytest.raises(LeaseTaken, match="ann@desk"):
        ground.agent.restore()


def test_a_kept_change_is_rolled_back_later_newest_first_without_local_state(ground):
    before = ground.look()
    first = ground.apply(transaction="one")
    ground.agent.commit(first.granted.lease.id)
    step = WriteFile(
        str(ground.script), ground.steps()[0].content_sha256, None, ground.steps()[1].content_sha256
    )
    second = ground.apply((step,), transaction="two")
    ground.agent.commit(second.granted.lease.id)
    assert [t.state for t in ground.agent.status().transactions] == ["committed", "committed"]

    restored = ground.agent.restore()

    assert restored.transactions == ("two", "one")
    assert ground.look() == before
    assert ground.agent.status().leases == ()


def test_rolling_back_the_older_of_two_changes_to_a_file_is_a_conflict_not_a_loss(ground):
    first = ground.apply(transaction="one")
    ground.agent.commit(first.granted.lease.id)
    step = WriteFile(
        str(ground.script), ground.steps()[0].content_sha256, None, ground.steps()[1].content_sha256
    )
    second = ground.apply((step,), transaction="two")
    ground.agent.commit(second.granted.lease.id)

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="one")

    assert [conflict.path for conflict in left.value.conflicts] == [str(ground.script)]


def test_keeping_twice_is_the_same_as_once(ground):
    applied = ground.apply()

    first = ground.agent.commit(applied.granted.lease.id, transaction="tx")
    again = ground.agent.commit(applied.granted.lease.id, transaction="tx")

    assert (first.already, again.already) == (False, True)
    assert first.transactions == again.transactions == ("tx",)


def test_of_a_late_commit_and_an_expiry_exactly_one_wins_and_both_say_so(ground):
    before = ground.look()
    applied = ground.apply()
    lease_id = applied.granted.lease.id
    assert ground.edges.leases.claim(lease_id, only_if_expired=False)

    with pytest.raises(ApplyFailed, match=r"expired first|restored itself"):
        ground.agent.commit(lease_id, transaction="tx")

    assert holding.expire(ground.edges, lease_id) is Expiry.SETTLED
    assert ground.look() == before
    with pytest.raises(ApplyFailed, match="restored itself"):
        ground.agent.commit(lease_id, transaction="tx")


def test_an_expiry_that_comes_after_a_commit_does_nothing(ground):
    applied = ground.apply()
    ground.agent.commit(applied.granted.lease.id)
    kept = ground.look()

    assert holding.expire(ground.edges, applied.granted.lease.id) is Expiry.SETTLED
    assert ground.look() == kept


def test_a_lease_nobody_renews_restores_the_host_by_itself(ground):
    before = ground.look()
    ground.apply(length_s=1)

    ground.wait_until_back(before)

    wait_until(lambda: ground.agent.status().leases == ())


def test_a_renewed_lease_lives_longer_and_then_ends(ground):
    before = ground.look()
    applied = ground.apply(length_s=3)
    lease_id = applied.granted.lease.id

    started_s = time.monotonic()
    while time.monotonic() - started_s < 4:
        ground.edges.leases.renew(lease_id, length_s=3)  # no agent's start comes in between
        time.sleep(0.2)
    assert ground.look() != before

    ground.agent.renew(lease_id, length_s=1)
    ground.wait_until_back(before)
    wait_until(lambda: ground.agent.status().leases == ())
    with pytest.raises(LeaseHeld, match="lease is gone"):
        ground.agent.renew(lease_id, length_s=5)


def test_setting_the_clock_neither_shortens_nor_lengthens_a_lease(ground):
    applied = ground.apply()
    record = ground.edges.leases.get(applied.granted.lease.id)
    leases = ground.edges.leases

    class Jumped(type(ground.edges.clock)):
        def now_s(self):
            return super().now_s() + 10_000_000

    jumped = Leases(ground.edges.state, Jumped())
    assert abs(jumped.remaining_s(record) - leases.remaining_s(record)) < 1


def test_a_lease_of_another_boot_is_over(ground):
    applied = ground.apply()
    record = ground.edges.leases.get(applied.granted.lease.id)

    assert ground.edges.leases.remaining_s(record) > 0
    assert ground.edges.leases.remaining_s(dataclasses.replace(record, boot_id="other")) < 0


def test_unlocking_needs_the_exact_id_and_restores_first(ground):
    before = ground.look()
    applied = ground.apply()

    with pytest.raises(InputError, match="no lease"):
        ground.agent.unlock(applied.granted.lease.id[:-1])
    ground.agent.unlock(applied.granted.lease.id)

    assert ground.look() == before
    assert ground.agent.status().leases == ()


def test_holding_on_between_two_arms_keeps_the_lease(ground):
    granted = ground.agent.acquire(ground.lease())
    lease = ground.lease()

    with pytest.raises(LeaseTaken):
        ground.agent.acquire(lease)
    ground.agent.release(granted.lease.id)
    ground.agent.acquire(lease)
    before = ground.look()
    ground.agent.apply(lease, "arm", ground.steps(), ground.contents())
    ground.agent.restore(transaction="arm", hold=True)

    assert ground.look() == before
    assert [held.lease.id for held in ground.agent.status().leases] == [lease.id]


def test_a_lease_is_renewed_while_a_long_change_holds_the_host(ground):
    applied = ground.apply(length_s=30)
    edges = ground.edges

    with edges.state.locked(edges.clock, wait_s=1):
        lease = ground.agent.renew(applied.granted.lease.id, length_s=50)
        assert [held.lease for held in ground.agent.status().leases] == [lease]


@pytest.mark.parametrize("look", ["all", "unreadable", "get"])
def test_a_lease_record_is_never_looked_at_while_it_is_rewritten(ground, look):
    applied = ground.apply()
    leases, words = ground.edges.leases, ()
    if look == "get":
        words = (applied.granted.lease.id,)
    looking = threading.Thread(target=getattr(leases, look), args=words)

    with ground.edges.state.leases_locked():
        looking.start()
        looking.join(0.2)
        assert looking.is_alive()
    looking.join(60)
    assert not looking.is_alive()


def test_forgetting_leaves_no_trace_and_refuses_while_something_is_held(ground):
    before = ground.look()
    lease = ground.apply().granted.lease

    with pytest.raises(LeaseHeld, match="still holds") as at_work:
        ground.agent.forget()
    ground.agent.commit(lease.id)
    with pytest.raises(LeaseHeld, match="still holds") as kept:
        ground.agent.forget()
    ground.agent.restore(transaction="tx")
    ground.agent.forget()

    assert at_work.value.why == f"run {lease.run_id} of {lease.holder} is at work"
    assert f"`fleetctl unlock --id {lease.id}`" in at_work.value.next_step
    assert kept.value.why == f"run {lease.run_id} of {lease.holder} left a committed change"
    assert f"`fleetctl rollback {lease.run_id}`" in kept.value.next_step
    assert ground.look() == before
    assert not ground.state.exists()


def test_what_is_over_leaves_no_objects_behind(ground):
    ground.apply()
    ground.agent.restore(transaction="tx")

    assert list((ground.state / "objects").iterdir()) == []
    assert list((ground.state / "scratch").iterdir()) == []
    assert not (ground.state / "transactions" / "tx" / "reserve").exists()


def test_of_transactions_that_are_over_only_the_last_twenty_are_kept(ground, monkeypatch):
    monkeypatch.setattr(transactions, "KEPT_JOURNALS", 2)
    for number in range(4):
        applied = ground.apply((ground.steps()[0],), transaction=f"tx-{number}")
        holding.end_lease(ground.edges, applied.granted.lease.id, Manner("test"))

    kept = {path.name for path in (ground.state / "transactions").iterdir()}

    assert kept == {"tx-2", "tx-3"}
    assert list((ground.state / "scratch").iterdir()) == []
