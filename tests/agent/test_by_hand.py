"""The script for people: whatever the names, times and units are, it brings them back."""

from __future__ import annotations

import os
import subprocess

import pytest

from fleetctl.agent.by_hand import by_hand
from fleetctl.agent.journal_file import JournalFile
from fleetctl.transaction.image import UnitBefore
from fleetctl.transaction.journal import Change
from fleetctl.transaction.step import RestartUnit, WriteFile
from tests.agent.conftest import NEW_SCRIPT, SCRIPT, sha256

NAMES = [
    b"plain",
    b"a b'c\"d$e`f",
    b"-rf",
    b"\xff\xfe",
    b"new\ntouch injected\n",
    b"carriage\rreturn",
    "ü".encode(),
]
TIMES_NS = [-1, -86_400_123_456_789, 4_102_444_800_000_000_001]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_comes_back_by_hand_and_by_itself(ground, name):
    (ground.tree / os.fsdecode(name)).write_bytes(SCRIPT)
    link = ground.tree / "through"
    link.symlink_to(os.fsdecode(name))
    before = ground.look()
    ground.apply((WriteFile(str(link), sha256(NEW_SCRIPT), None, sha256(SCRIPT)),))
    script = JournalFile(ground.edges.state, "tx").folder / "by-hand.sh"

    done = subprocess.run(["sh", script], check=False, capture_output=True, cwd=ground.tree)

    assert done.returncode == 0, done.stderr
    assert ground.look() == before
    ground.agent.restore(transaction="tx")
    assert ground.look() == before


@pytest.mark.parametrize("where", ["file", "directory"])
def test_nothing_is_written_by_hand_through_a_link_that_somebody_made_since(ground, where):
    ground.apply((ground.steps()[0],))
    script = JournalFile(ground.edges.state, "tx").folder / "by-hand.sh"
    linked = ground.module if where == "file" else ground.module.parent
    theirs = ground.root / "theirs"
    linked.rename(theirs)
    linked.symlink_to(theirs)
    content = ground.module.read_bytes()

    done = subprocess.run(["sh", script], check=False, capture_output=True, text=True)

    assert done.returncode == 1
    assert f"{ground.module}: it, or a directory on the way, is gone or a symlink" in done.stderr
    assert ground.module.read_bytes() == content
    linked.unlink()
    theirs.rename(linked)


@pytest.mark.parametrize("mtime_ns", TIMES_NS)
def test_a_time_before_1970_or_far_ahead_comes_back_by_hand_and_by_itself(ground, mtime_ns):
    os.utime(ground.script, ns=(0, mtime_ns))
    step = WriteFile(str(ground.script), sha256(NEW_SCRIPT), None, sha256(SCRIPT))
    ground.apply((step,))
    script = JournalFile(ground.edges.state, "tx").folder / "by-hand.sh"

    subprocess.run(["sh", script], check=True, capture_output=True)

    assert ground.script.stat().st_mtime_ns == mtime_ns
    ground.script.write_bytes(NEW_SCRIPT)
    ground.agent.restore(transaction="tx")
    assert ground.script.stat().st_mtime_ns == mtime_ns


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        (
            UnitBefore(True, "active/running", "enabled", "i", ("router.service", "b.service")),
            ["systemctl restart x.service", "systemctl start router.service b.service"],
        ),
        (
            UnitBefore(False, "inactive/dead", "disabled", ""),
            ["systemctl stop x.service", "systemctl reset-failed x.service || true"],
        ),
    ],
)
def test_a_unit_runs_afterwards_exactly_if_it_ran_before(ground, before, lines):
    text = by_hand(ground.edges.state, "tx", (Change(RestartUnit("x.service"), before),))

    assert [line for line in text.splitlines() if line.startswith("systemctl")] == lines
