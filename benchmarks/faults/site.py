"""A host under attack: how to reach it, what it must look like, and how long it takes to be so."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.errors import FleetError
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.host.transport import Completed, Transport
from fleetctl.transaction.image import ABSENT
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.step import (
    MakeDirectory,
    ReloadUnits,
    RemoveFile,
    RestartUnit,
    Step,
    WriteFile,
)

Look = dict[str, object]
LOOK = (Path(__file__).parent / "look.py").read_text()
GRACE_S = 5.0
SETTLE_S = 40.0
SOAK_S = 0.3
KILLABLE = (
    "openat,close,read,pread64,write,pwrite64,lseek,fstat,newfstatat,getdents64,readlink,readlinkat,"
    "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "symlink,symlinkat,fchmod,fchmodat,chmod,fchown,ftruncate,fallocate,utimensat,fsetxattr,"
    "fremovexattr,flistxattr,fgetxattr,flock,fstatfs,ioctl,faccessat,faccessat2"
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Site:
    """One host.

    Attributes:
        name: for the table.
        connect: opens a connection.
        tree: what the transaction changes.
        state: the agent's directory.
        unit: to restart; empty on a host that is a plain directory.
        python: interpreter on the host.
        module: Python file below the tree.
        script: shell file below the tree; empty for none.
    """

    name: str
    connect: Callable[[], Transport]
    tree: str
    state: str
    unit: str
    python: str
    module: str
    script: str
    originals: dict[str, bytes] = field(default_factory=dict)
    _transport: Transport | None = None

    @property
    def transport(self) -> Transport:
        """Return a live connection, a new one where the last one was cut."""
        if self._transport is not None:
            try:
                self._transport.check_alive(deadline_s=5.0)
            except FleetError:
                self._transport.close()
                self._transport = None
        if self._transport is None:
            self._transport = self.connect()
        return self._transport

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def agent(self, python: str = "") -> Agent:
        """Return the agent's client, run by a python of one's choice."""
        return Agent(self.transport, python=python or self.python, state_dir=self.state)

    def run(self, *argv: str, deadline_s: float = 30.0, stdin: bytes = b"") -> Completed:
        """Run a command on the host."""
        return self.transport.run(argv, stdin=stdin, deadline_s=deadline_s)

    def shell(self, text: str, *, deadline_s: float = 30.0) -> str:
        """Run a shell text on the host and return what it prints."""
        done = self.run("sh", "-c", text, deadline_s=deadline_s)
        return done.stdout.decode(errors="replace")

    def look(self) -> Look:
        """Return everything that must be as before."""
        done = self.run(self.python, "-I", "-S", "-c", LOOK, self.tree, self.state, self.unit)
        if done.exit_code != 0:
            raise RuntimeError(done.stderr.decode())
        found: Look = json.loads(done.stdout)
        return found

    def remember(self) -> None:
        """Read the files that plans are going to replace."""
        for name in (self.module, self.script, "obsolete.conf"):
            path = f"{self.tree}/{name}"
            if name and self.run("test", "-f", path).exit_code == 0:
                self.originals[name] = self.transport.get(path)

    def steps(self, *, soak_s: float = SOAK_S, stop_deadline_s: float = 20.0) -> list[Step]:
        """Return a plan with every kind of step that this site knows."""
        fresh = f"{self.tree}/fresh"
        steps: list[Step] = [
            self.write(self.module, self.originals[self.module] + b"\n# changed\n"),
            MakeDirectory(fresh),
            WriteFile(f"{fresh}/new.py", sha256(b"NEW = 1\n"), None, ABSENT),
        ]
        if "obsolete.conf" in self.originals:
            digest = sha256(self.originals["obsolete.conf"])
            steps.append(RemoveFile(f"{self.tree}/obsolete.conf", digest))
        if self.script:
            steps.append(self.write(self.script, self.originals[self.script] + b"# changed\n"))
        if self.unit:
            steps += [ReloadUnits(), RestartUnit(self.unit, soak_s, stop_deadline_s)]
        return steps

    def write(self, name: str, content: bytes, mode: int | None = None) -> WriteFile:
        """Return the step that replaces an original."""
        expect = sha256(self.originals[name])
        return WriteFile(f"{self.tree}/{name}", sha256(content), mode, expect)

    def contents(self, *more: bytes) -> dict[str, bytes]:
        """Return the contents that the plans of this site write, and others."""
        known = [*more, b"NEW = 1\n"]
        for name in filter(None, (self.module, self.script)):
            known += [
                self.originals[name] + b"\n# changed\n",
                self.originals[name] + b"# changed\n",
            ]
        return {sha256(content): content for content in known}

    def lease(self, length_s: float) -> LeaseRequest:
        """Return a new lease to ask for."""
        return LeaseRequest(new_id(), "campaign", "nemesis@lab", "faults", self.unit, length_s)

    def wait_restored(
        self, before: Look, *, since_s: float, limit_s: float = SETTLE_S
    ) -> tuple[float | None, list[str]]:
        """Wait until the host is as before, and then until nothing is left over.

        Returns:
            Seconds from `since_s` to files and unit being back, or None; and what is wrong.
        """
        back_s: float | None = None
        wrong: list[str] = ["it could not be looked at"]
        while time.monotonic() - since_s < limit_s:
            try:
                now = self.look()
            except (FleetError, RuntimeError):
                time.sleep(0.2)
                continue
            same = all(now[part] == before[part] for part in ("files", "unit"))
            if same and back_s is None:
                back_s = time.monotonic() - since_s
            wrong = differences(before, now)
            if same and not wrong:
                return back_s, []
            time.sleep(0.1)
        return back_s, wrong

    def second_recovery_changes_nothing(self) -> list[str]:
        """Run recovery once more and compare inodes, change times and the unit's instance."""
        first = self._identity()
        recover = f'"{self.python}" -I -S "$agent" recover "{self.state}"'
        self.shell(f'for agent in "{self.state}"/agent/*.pyz; do {recover}; done')
        second = self._identity()
        return [] if first == second else [f"a second recovery changed {first} to {second}"]

    def _identity(self) -> str:
        unit = f"; systemctl show -p InvocationID {self.unit}" if self.unit else ""
        prune = "-name __pycache__ -prune -o"
        return self.shell(
            f"find {self.tree} {prune} -printf '%p %i %C@\\n' | sort | sha256sum{unit}"
        )


def differences(before: Look, now: Look) -> list[str]:
    """Return in words what is not as before."""
    wrong = [str(item) for item in _list(now["left"]) if item not in _list(before["left"])]
    for part in ("files", "unit"):
        old, new = _dict(before[part]), _dict(now[part])
        changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        wrong += [f"{key}: {old.get(key)} -> {new.get(key)}" for key in changed]
    return wrong


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
