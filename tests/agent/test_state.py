"""The agent's directory on a host: what is not ours is named, and nothing is done about it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from fleetctl.agent.holding import drop, recover
from fleetctl.agent.state import FOLDERS, OURS
from fleetctl.errors import HostError
from fleetctl.host.agent_client import Agent

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


def test_a_directory_that_holds_somebodys_things_is_never_made_ours(ground):
    home = ground.root / "home"
    home.mkdir(mode=0o755)
    (home / "thesis").write_bytes(b"years")
    home.chmod(0o755)

    for is_visited in (False, True):
        if is_visited:  # by an agent that lies there for whatever reason
            shutil.copytree(ground.state / "agent", home / "agent")
        with pytest.raises(HostError) as refused:
            Agent(ground.agent.transport, python=sys.executable, state_dir=str(home)).acquire(
                ground.lease()
            )
        assert "is no directory of fleetctl's" in f"{refused.value.what} {refused.value.why}"
        assert "thesis" in refused.value.why

    assert {path.name for path in home.iterdir()} == {"thesis", "agent"}
    assert home.stat().st_mode & 0o777 == 0o755


def test_what_a_kill_left_of_a_directory_that_was_being_forgotten_is_ours_still(ground):
    ground.agent.forget()

    for left in (OURS[1:], OURS[4:]):  # the agents go first
        ground.state.mkdir(mode=0o700)
        for name in left:
            path = ground.state / name
            path.mkdir(mode=0o700) if name in FOLDERS else path.touch(mode=0o600)
        ground.agent.forget()
        assert not ground.state.exists()


def test_forgetting_leaves_what_somebody_put_beside_ours(ground):
    ground.agent.release(ground.apply().granted.lease.id)
    (ground.state / "notes").write_bytes(b"mine")

    ground.agent.forget()

    assert [path.name for path in ground.state.iterdir()] == ["notes"]
    shutil.rmtree(ground.state)


def test_the_dead_man_does_not_wait_for_a_pipe_among_the_leases(ground):
    before = ground.look()
    ground.apply()
    (record,) = ground.edges.leases.all()
    drop(ground.edges, record.lease.id)
    os.mkfifo(ground.state / "leases" / "x.json")
    recover(ground.edges)
    assert ground.look() == before
    (ground.state / "leases" / "x.json").unlink()
