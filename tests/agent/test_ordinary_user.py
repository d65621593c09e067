"""Without root: one's own files, a watcher for a dead-man, and clear refusals for the rest."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import FleetError
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.host.local import connect_local
from fleetctl.transaction.failure import LeaseTaken
from fleetctl.transaction.image import ABSENT
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.step import WriteFile
from tests.host.processes import wait_until

NOBODY = 65534
PYTHON = "/usr/bin/python3"
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None or not Path(PYTHON).exists(),
    reason="needs root, to become somebody else",
)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class AsNobody:
    """A transport whose programs run as an ordinary user."""

    host_name = "here"

    def __init__(self):
        self._local = connect_local("here", clock=SystemClock())

    def run(self, argv, *, stdin=b"", deadline_s):
        return self._local.run([*AS_NOBODY, *argv], stdin=stdin, deadline_s=deadline_s)

    def close(self):
        self._local.close()


@pytest.fixture
def home():
    path = Path(tempfile.mkdtemp(prefix="fleetctl-nobody-"))
    path.chmod(0o755)
    os.chown(path, NOBODY, NOBODY)
    (path / "file").write_bytes(b"old")
    os.chown(path / "file", NOBODY, NOBODY)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def agent(home):
    transport = AsNobody()
    made = Agent(transport, python=PYTHON, state_dir=str(home / "state"))
    yield made
    for held in made.status().leases:
        made.release(held.lease.id)
    transport.close()


def lease(length_s=60.0):
    return LeaseRequest(new_id(), "run", "ann@desk", "hunting", "", length_s)


def test_ones_own_files_are_changed_and_restored_by_a_watcher(agent, home):
    before = (home / "file").stat()
    step = WriteFile(str(home / "file"), sha256(b"new"), None, sha256(b"old"))

    applied = agent.apply(lease(), new_id(), [step], {sha256(b"new"): b"new"})
    assert applied.granted.deadman == "watcher"
    assert (home / "file").read_bytes() == b"new"
    agent.renew(applied.granted.lease.id, length_s=1)
    wait_until(lambda: (home / "file").read_bytes() == b"old")

    after = (home / "file").stat()
    assert (home / "file").read_bytes() == b"old"
    assert (after.st_uid, after.st_mode, after.st_mtime_ns) == (
        before.st_uid,
        before.st_mode,
        before.st_mtime_ns,
    )


def test_the_state_belongs_to_the_user_alone(agent, home):
    agent.acquire(lease())

    paths = [home / "state", *(home / "state").rglob("*")]
    assert {path.stat().st_uid for path in paths} == {NOBODY}
    assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_a_file_whose_owner_could_not_be_kept_is_refused(agent, home):
    path = home / "roots"
    path.write_bytes(b"old")
    step = WriteFile(str(path), sha256(b"new"), None, sha256(b"old"))

    with pytest.raises(FleetError, match="only root could keep"):
        agent.apply(lease(), new_id(), [step], {sha256(b"new"): b"new"})

    assert path.stat().st_uid == 0
    assert path.read_bytes() == b"old"


def test_a_directory_that_may_not_be_written_to_is_refused(agent):
    step = WriteFile("/etc/fleetctl-test", sha256(b"new"), None, ABSENT)

    with pytest.raises(FleetError, match="may not be written"):
        agent.apply(lease(), new_id(), [step], {sha256(b"new"): b"new"})


def test_root_and_an_ordinary_user_do_not_work_on_one_file(agent, home):
    roots = Agent(connect_local("here", clock=SystemClock()), state_dir=str(home / "roots"))
    step = WriteFile(str(home / "file"), sha256(b"new"), None, sha256(b"old"))
    for first, then in ((roots, agent), (agent, roots)):
        held = lease()
        first.apply(held, new_id(), [step], {sha256(b"new"): b"new"})
        with pytest.raises(LeaseTaken, match="held by ann@desk"):
            then.apply(lease(), new_id(), [step], {sha256(b"new"): b"new"})
        first.release(held.id)
        assert (home / "file").read_bytes() == b"old"
    roots.transport.close()
