"""The agent's directory on a host: what is not ours is named, and nothing is done about it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fleetctl.agent.holding import drop, recover
from fleetctl.errors import HostError

WRONG = {
    "lock": os.mkdir,
    "lease-lock": os.mkfifo,
    "leases": os.mkfifo,
    "objects": lambda path: Path(path).symlink_to("elsewhere"),
    "leases/x.json": os.mkfifo,
    "transactions/tx/journal": os.mkdir,
    "transactions/tx/problem": lambda path: Path(path).symlink_to("/dev/zero"),
    "transactions/other": os.mkfifo,
}


def test_a_file_of_a_wrong_kind_is_named_with_what_to_do_and_nothing_is_changed(ground):
    ground.kill_watcher(ground.apply())  # it takes hidden leases for lost ones, and restores
    changed = ground.look()
    aside = ground.root / "aside"
    for name, make in WRONG.items():
        path = ground.state / name
        was_there = path.exists()
        if was_there:
            path.rename(aside)
        make(path)
        with pytest.raises(HostError) as refused:
            ground.agent.restore(transaction="tx")
        assert str(path) in refused.value.what
        assert "move it away" in refused.value.next_step
        assert ground.look() == changed
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if was_there:
            aside.rename(path)
    ground.agent.restore(transaction="tx")
    assert ground.agent.status().transactions == ()


def test_the_dead_man_does_not_wait_for_a_pipe_among_the_leases(ground):
    before = ground.look()
    ground.apply()
    (record,) = ground.edges.leases.all()
    drop(ground.edges, record.lease.id)
    os.mkfifo(ground.state / "leases" / "x.json")
    recover(ground.edges)
    assert ground.look() == before
    (ground.state / "leases" / "x.json").unlink()
