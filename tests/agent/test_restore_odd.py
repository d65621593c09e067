"""Restoring what people made of a tree meanwhile, and what of a file is neither mode nor owner."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys

import pytest

from fleetctl.agent import files, holding
from fleetctl.agent.holding import Expiry
from fleetctl.agent.leases import Leases
from fleetctl.agent.trouble import trouble
from fleetctl.errors import (
    ApplyFailed,
    ExitCode,
    FleetError,
    InputError,
    InternalError,
    RemoteFailed,
)
from fleetctl.host.agent_client import Agent
from fleetctl.transaction.failure import FilesInConflict, NotBack
from fleetctl.transaction.step import WriteFile
from tests.agent.conftest import NEW_MODULE, NEW_SCRIPT, SCRIPT, sha256


def a_directory(path):
    shutil.rmtree(path)


def a_file(path):
    shutil.rmtree(path)
    path.write_bytes(b"mine")


def directories(path):
    for file in path.iterdir():
        file.unlink()
        file.mkdir()


@pytest.mark.parametrize("deed", [a_directory, a_file, directories])
def test_bytecode_whose_directory_somebody_removed_keeps_nothing_from_coming_back(ground, deed):
    before = ground.look()
    ground.apply()
    deed(ground.module.parent / "__pycache__")

    ground.agent.restore(transaction="tx")

    kept = {path: facts for path, facts in before.items() if "__pycache__" not in path}
    assert {p: f for p, f in ground.look().items() if "__pycache__" not in p} == kept
    assert ground.agent.status().leases == ()


@pytest.mark.parametrize("deed", [a_directory, a_file])
def test_a_file_whose_directory_somebody_removed_is_a_conflict_and_the_rest_comes_back(
    ground, deed
):
    ground.apply()
    deed(ground.module.parent)

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="tx")

    (conflict,) = left.value.conflicts
    assert conflict.path == str(ground.module)
    assert "its directory is gone" in conflict.diff
    assert ground.script.read_bytes() == SCRIPT
    assert ground.agent.status().leases == ()
    with pytest.raises(NotBack, match="its directory is gone; put it back or make it again"):
        ground.agent.restore(transaction="tx", force=True)
    if ground.module.parent.is_file():
        ground.module.parent.unlink()
    ground.module.parent.mkdir()
    ground.agent.restore(transaction="tx", force=True)
    assert ground.module.read_bytes() == b"VALUE = 'old'\n"


def test_a_conflict_over_a_removed_directory_is_over_when_somebody_settles_for_it(ground):
    ground.apply()
    a_directory(ground.module.parent)
    with pytest.raises(FilesInConflict):
        ground.agent.restore(transaction="tx")

    ground.agent.settle("tx")

    assert ground.agent.status().transactions == ()


@pytest.mark.parametrize("name", ["fresh/deep", "fresh"])
def test_what_took_the_place_of_a_directory_of_ours_is_a_conflict(ground, name):
    ground.apply()
    a_file(ground.tree / name)

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="tx")

    assert str(ground.tree / name) in {conflict.path for conflict in left.value.conflicts}
    assert (ground.tree / name).read_bytes() == b"mine"
    assert ground.module.read_bytes() == b"VALUE = 'old'\n"


@pytest.fixture
def twice(ground):
    """Two kept changes of the script, one on top of the other."""
    for name, new, old in (("one", NEW_SCRIPT, SCRIPT), ("two", NEW_MODULE, NEW_SCRIPT)):
        step = WriteFile(str(ground.script), sha256(new), None, sha256(old))
        ground.agent.commit(ground.apply((step,), transaction=name).granted.lease.id)
    return ground


def test_what_a_later_change_rests_on_is_not_overwritten_before_it(twice):
    before = twice.look()

    with pytest.raises(InputError, match="a later run has changed"):
        twice.agent.restore(transaction="one", force=True)

    assert twice.look() == before
    twice.agent.restore(transaction="two", force=True)
    twice.agent.restore(transaction="one", force=True)
    assert twice.script.read_bytes() == SCRIPT


def test_a_conflict_is_told_also_where_another_transaction_came_back(twice):
    step = WriteFile(str(twice.module), sha256(NEW_MODULE), None, sha256(b"VALUE = 'old'\n"))
    twice.agent.commit(twice.apply((step,), transaction="three").granted.lease.id)
    twice.script.write_bytes(b"mine")

    with pytest.raises(FilesInConflict) as left:
        twice.agent.restore()

    assert [conflict.path for conflict in left.value.conflicts][:1] == [str(twice.script)]
    assert twice.script.read_bytes() == b"mine"
    assert twice.module.read_bytes() == b"VALUE = 'old'\n"


def flags_of(path):
    return subprocess.run(["lsattr", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("letters", ["A", "d", "S", "Ad"])
def test_flags_of_chattr_stay_on_the_new_file_and_come_back(ground, letters):
    paths = [ground.module, ground.tree / "obsolete.conf"]
    for path in paths:
        done = subprocess.run(["chattr", f"+{letters}", path], check=False, capture_output=True)
        if done.returncode != 0:
            pytest.skip("this file system has no such flag")
    before = [flags_of(path) for path in paths]
    ground.apply()
    assert flags_of(ground.module) == before[0]
    subprocess.run(["chattr", f"-{letters}", ground.module], check=True)

    ground.agent.restore(transaction="tx")

    assert [flags_of(path) for path in paths] == before


def test_a_host_that_cannot_note_a_lease_is_left_without_its_dead_man(ground, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Leases, "add", full)

    with pytest.raises(ApplyFailed, match="could not note") as refused:
        ground.apply()

    assert refused.value.exit_code is ExitCode.REFUSED
    assert "No space left" in refused.value.why
    assert ground.agent.status().leases == ()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_full_or_read_only_host_is_the_hosts_trouble_and_no_bug(number):
    error = OSError(number, "words of the kernel", "/var/lib/fleetctl/lock")

    for verb, kind in (("acquire", RemoteFailed), ("renew", RemoteFailed), ("release", NotBack)):
        found = trouble(verb, error)
        assert type(found) is kind
        assert found.why == "words of the kernel (/var/lib/fleetctl/lock)"


def test_a_bug_stays_a_bug(ground):
    assert trouble("apply", OSError(errno.EBADF, "no")) is None
    assert trouble("apply", KeyError("x")) is None
    with pytest.raises(InternalError):
        ground.agent._ask(str, "renew", {"lease_id": 3}, deadline_s=5.0)


@pytest.mark.parametrize("call", ["flistxattr", "fgetxattr", "ioctl"])
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_attributes_and_flags_that_cannot_be_read_are_not_taken_for_none(ground, call):
    before = ground.look()
    python = ground.root / "python"
    inject = f"strace -qq -o /dev/null -e trace={call} -e inject={call}:error=EIO:when=1+"
    python.write_text(f'#!/bin/sh\nexec {inject} {sys.executable} "$@"\n')
    python.chmod(0o755)
    agent = Agent(ground.agent.transport, python=str(python), state_dir=str(ground.state))

    with pytest.raises(FleetError, match="Input/output error"):
        agent.apply(ground.lease(), "tx", ground.steps()[:1], ground.contents())

    assert ground.look() == before
    assert ground.agent.status().leases == ()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_file_that_cannot_be_read_for_a_moment_is_no_edit_of_somebodys(
    ground, monkeypatch, number
):
    before = ground.look()
    applied = ground.apply()
    ground.kill_watcher(applied)
    lease_id = applied.granted.lease.id
    ground.edges.leases.claim(lease_id, only_if_expired=False)

    def fails(*_):
        raise OSError(number, "words of the kernel")

    with monkeypatch.context() as broken:
        broken.setattr(files, "wait_for_writers", fails)
        assert holding.expire(ground.edges, lease_id) is Expiry.UNRESTORED

    assert "words of the kernel" in ground.agent.status().transactions[0].problem
    assert holding.expire(ground.edges, lease_id) is Expiry.SETTLED
    assert ground.look() == before


def test_an_older_change_waits_for_a_newer_one_of_the_same_file_that_is_stuck(twice):
    (lost,) = [p for p in twice.state.glob("objects/*") if p.read_bytes() == NEW_SCRIPT]
    lost.unlink()  # what the newer change found

    with pytest.raises(NotBack, match="it comes after two, which is not back yet"):
        twice.agent.restore()

    assert twice.script.read_bytes() == NEW_MODULE
    assert "conflict" not in {held.state for held in twice.agent.status().transactions}
    lost.write_bytes(NEW_SCRIPT)
    twice.agent.restore(run_id="run-1")
    assert twice.script.read_bytes() == SCRIPT
    assert twice.agent.status().transactions == ()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_change_whose_undo_fails_leaves_the_one_before_it_open_and_not_in_conflict(ground):
    before = ground.look()
    lease = ground.lease()
    first = ground.steps()[:1]
    ground.agent.apply(lease, "first", first, ground.contents())
    python = ground.root / "python"
    # the exchange of the undo, and every one after it: of the take-back, of the change, of its undo
    inject = "strace -qq -o /dev/null -e trace=renameat2 -e inject=renameat2:error=EROFS:when=3+"
    python.write_text(f'#!/bin/sh\nexec {inject} {sys.executable} "$@"\n')
    python.chmod(0o755)
    agent = Agent(ground.agent.transport, python=str(python), state_dir=str(ground.state))
    other = WriteFile(str(ground.module), sha256(SCRIPT), None, sha256(b"VALUE = 'old'\n"))
    failing = WriteFile(str(ground.script), sha256(NEW_SCRIPT), None, sha256(SCRIPT))

    with pytest.raises(FleetError):
        agent.apply(lease, "second", (other, failing), ground.contents(), replaces="first")

    assert {held.state for held in ground.agent.status().transactions} == {"reverting"}
    ground.agent.release(lease.id)
    assert ground.look() == before
    assert ground.agent.status().transactions == ()
