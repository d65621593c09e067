"""The dead-man of hosts without systemd: a process that looks at its lease and then restores."""

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.agent.conftest import processes_naming


def test_an_expired_lease_is_taken_over_only_after_the_host_was_restored(ground):
    before = ground.look()
    applied = ground.apply()
    ground.kill_watcher(applied)
    ground.edges.leases.renew(applied.granted.lease.id, 0.0)
    assert ground.look() != before

    ground.agent.acquire(ground.lease(run_id="run-2"))

    assert ground.look() == before
    assert [held.lease.run_id for held in ground.agent.status().leases] == ["run-2"]


def test_an_unreadable_lease_record_ends_in_a_restored_host(ground):
    before = ground.look()
    applied = ground.apply()
    (ground.state / "leases" / f"{applied.granted.lease.id}.json").write_bytes(b"{garbage")

    ground.agent.acquire(ground.lease())

    assert ground.look() == before


def _damage(record: Path) -> None:
    record.write_bytes(b"{garbage")


def _hide_all(record: Path) -> None:
    record.parent.rename(record.parent.with_name("aside"))
    os.mkfifo(record.parent)


@pytest.mark.parametrize("lose", [_damage, Path.unlink, _hide_all])
def test_a_watcher_whose_lease_is_lost_restores_at_once_and_ends(ground, lose):
    """It must not sleep until the end of a lease that nobody can renew any more."""
    before = ground.look()
    applied = ground.apply(length_s=600)
    ground.wait_for_watcher()
    time.sleep(1.5)  # it has seen the lease and sleeps
    lose(ground.state / "leases" / f"{applied.granted.lease.id}.json")

    ground.wait_until_back(before)

    ground.wait_until_unwatched()


def test_a_watcher_ends_when_the_state_is_taken_away_below_it(ground):
    ground.apply(length_s=600)
    ground.wait_for_watcher()

    shutil.move(ground.state, ground.state.with_name("elsewhere"))

    ground.wait_until_unwatched()


def test_a_watcher_outlives_a_lock_of_a_wrong_kind_and_then_restores(ground):
    before = ground.look()
    applied = ground.apply(length_s=600)
    ground.wait_for_watcher()
    lock = ground.state / "lease-lock"
    lock.unlink()
    lock.mkdir()
    time.sleep(2.5)  # it looks every second
    assert processes_naming(f"watch {ground.state}") != []

    lock.rmdir()
    (ground.state / "leases" / f"{applied.granted.lease.id}.json").unlink()

    ground.wait_until_back(before)
