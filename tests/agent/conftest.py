"""Hosts for tests of the agent: a directory full of what is hard to bring back, or one of a lab."""

from __future__ import annotations

import contextlib
import hashlib
import os
import py_compile
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.agent.apply import ApplyRequest, apply
from fleetctl.agent.deadman import Program
from fleetctl.agent.edges import Edges, open_edges
from fleetctl.clock import SystemClock
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.host.bundle import agent_bundle
from fleetctl.host.local import connect_local
from fleetctl.transaction.image import ABSENT
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.outcome import Applied
from fleetctl.transaction.step import MakeDirectory, RemoveFile, Step, WriteFile
from tests.agent.lab_host import Host, connect_host
from tests.host.processes import wait_until

OLD_MODULE = b"VALUE = 'old'\n"
NEW_MODULE = b"VALUE = 'new'\n"
SCRIPT = b"#!/bin/bash\nexport FLAG=0\n"
NEW_SCRIPT = b"#!/bin/bash\nexport FLAG=1\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Ground:
    """A host under one directory; its agent is the zipapp, its controller this process."""

    root: Path
    zipapp: Path
    agent: Agent

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    @property
    def module(self) -> Path:
        return self.tree / "serve" / "indexer.py"

    @property
    def script(self) -> Path:
        return self.tree / "serve.sh"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def edges(self) -> Edges:
        edges = open_edges(str(self.state), Program(sys.executable, str(self.zipapp)))
        edges.state.prepare()
        return edges

    def lease(self, length_s: float = 60.0, unit: str = "", run_id: str = "run-1") -> LeaseRequest:
        return LeaseRequest(new_id(), run_id, "ann@desk", "hunting", unit, length_s)

    def steps(self) -> tuple[Step, ...]:
        """Every kind of file step, on everything that is hard to bring back."""
        new = self.tree / "fresh" / "deep" / "module.py"
        return (
            WriteFile(str(self.module), sha256(NEW_MODULE), None, sha256(OLD_MODULE)),
            WriteFile(str(self.tree / "link.sh"), sha256(NEW_SCRIPT), None, sha256(SCRIPT)),
            MakeDirectory(str(new.parent.parent)),
            MakeDirectory(str(new.parent), 0o750),
            WriteFile(str(new), sha256(NEW_MODULE), None, ABSENT),
            RemoveFile(str(self.tree / "obsolete.conf"), sha256(b"obsolete\n")),
            WriteFile(str(self.tree / "empty"), sha256(SCRIPT), 0o600, sha256(b"")),
        )

    def contents(self) -> dict[str, bytes]:
        return {sha256(content): content for content in (NEW_MODULE, NEW_SCRIPT, SCRIPT)}

    def apply(
        self,
        steps: tuple[Step, ...] | None = None,
        *,
        transaction: str = "tx",
        length_s: float = 60,
    ) -> Applied:
        """Apply in this process."""
        return apply(self.edges, self.request(steps, transaction=transaction, length_s=length_s))

    def request(
        self,
        steps: tuple[Step, ...] | None = None,
        *,
        transaction: str = "tx",
        length_s: float = 60,
        within: tuple[str, ...] = (),
    ) -> ApplyRequest:
        lease = self.lease(length_s)
        chosen = self.steps() if steps is None else steps
        return ApplyRequest(lease, transaction, chosen, within, self.contents())

    def kill_watcher(self, applied: Applied) -> None:
        """End the dead-man, which would act on its own within a second."""
        record = self.edges.leases.get(applied.granted.lease.id)
        os.kill(record.armed.watcher_pid, signal.SIGKILL)

    def look(self) -> dict[str, object]:
        """Return everything about every file, for comparing before and after."""
        return {str(path.relative_to(self.root)): _facts(path) for path in self.tree.rglob("*")}

    def wait_until_back(self, before: dict[str, object]) -> None:
        """Wait until the host is as it was; what vanishes while we look is being restored."""

        def is_back() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return self.look() == before
            return False

        wait_until(is_back)

    def wait_for_watcher(self) -> None:
        """Wait until the dead-man runs, which the agent only starts."""
        wait_until(lambda: processes_naming(f"watch {self.state}") != [])

    def wait_until_unwatched(self) -> None:
        """Wait until no dead-man is left."""
        wait_until(lambda: processes_naming(f"watch {self.state}") == [])

    def import_value(self) -> str:
        """Import the module in a fresh interpreter, as a restarted service would."""
        code = "from serve import indexer; print(indexer.VALUE)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.tree,
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.tree)},
        )
        return done.stdout.strip()


def _facts(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    common = (stat.filemode(found.st_mode), found.st_uid, found.st_gid)
    if path.is_symlink():
        return (*common, path.readlink())
    if not path.is_file():
        return common
    names = sorted(os.listxattr(path))
    xattrs = tuple((name, os.getxattr(path, name)) for name in names)
    return (*common, path.read_bytes(), found.st_mtime_ns, found.st_nlink, xattrs)


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory) -> Path:
    """The agent as hosts get it."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(agent_bundle().content)
    return path


@pytest.fixture(scope="session")
def installed_agent(tmp_path_factory) -> Path:
    """The agent as it lies on a host that was visited before."""
    state = tmp_path_factory.mktemp("visited") / "state"
    transport = connect_local("here", clock=SystemClock())
    Agent(transport, python=sys.executable, state_dir=str(state)).status()
    transport.close()
    return state / "agent"


@pytest.fixture
def ground(tmp_path, zipapp, installed_agent):
    """A fresh directory host; at the end no process of it may be left."""
    made = make_ground(tmp_path, zipapp)
    made.state.mkdir(mode=0o700)
    shutil.copytree(installed_agent, made.state / "agent")
    yield made
    end_leases(made)
    made.agent.transport.close()
    wait_until(lambda: processes_naming(str(made.state)) == [])


def make_ground(root: Path, zipapp: Path) -> Ground:
    transport = connect_local("here", clock=SystemClock())
    agent = Agent(transport, python=sys.executable, state_dir=str(root / "state"))
    made = Ground(root, zipapp, agent)
    made.module.parent.mkdir(parents=True)
    (made.module.parent / "__init__.py").write_bytes(b"")
    made.module.write_bytes(OLD_MODULE)
    made.module.chmod(0o640)
    os.setxattr(made.module, "user.note", b"kept")
    os.utime(made.module, ns=(1, 1_700_000_000_123_456_789))
    for source in made.module.parent.glob("*.py"):
        py_compile.compile(str(source), doraise=True)
    made.script.write_bytes(SCRIPT)
    made.script.chmod(0o755)
    (made.tree / "link.sh").symlink_to("serve.sh")
    (made.tree / "obsolete.conf").write_bytes(b"obsolete\n")
    (made.tree / "empty").write_bytes(b"")
    (made.tree / "untouched").write_bytes(b"mine")
    return made


def end_leases(ground: Ground) -> None:
    if not ground.state.exists():
        return
    for held in ground.agent.status().leases:
        ground.agent.release(held.lease.id)


def processes_naming(word: str) -> list[str]:
    """Return command lines that contain a word."""
    return [line for line in _command_lines() if word in line]


def _command_lines() -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return lines


@pytest.fixture
def host_of_each_kind(lab_of_each_kind) -> Iterator[Host]:
    """lab-1 of each kind of lab; at the end it must be as it was, with nothing left behind."""
    yield from _borrowed(connect_host(lab_of_each_kind.lab, "lab-1"))


@pytest.fixture
def host(lab_hosts) -> Iterator[Host]:
    """lab-1 of the best kind; at the end it must be as it was, with nothing left behind."""
    yield from _borrowed(connect_host(lab_hosts.lab, "lab-1"))


def _borrowed(host: Host) -> Iterator[Host]:
    before = host.look()
    yield host
    assert host.look() == before
    assert not host.held()
    host.agent.forget()
    host.agent.transport.close()


@pytest.fixture
def systemd_host(host) -> Host:
    """A host with a systemd of its own."""
    if not host.shell("ls -d /run/systemd/system 2>/dev/null").strip():
        pytest.skip("this machine permits no hosts with systemd")
    return host
