"""What a lab is made of, as values, and the file that remembers it.

`lab.json` is written before each act, so that whatever an act leaves behind when the
controller dies can be found again: every name on the machine derives from the token.
"""

from __future__ import annotations

import enum
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetctl.errors import LabError

UNIT = "sglang-dsv4-decode.service"
SERVE_SCRIPT = "serve_dsv4_decode.sh"
MAX_HOSTS = 250  # a /24 without the network, the gateway and the broadcast address


class Kind(enum.StrEnum):
    """What the hosts of a lab are made of."""

    NAMESPACES = "namespaces"
    PROCESSES = "processes"


GPU = "a GPU"
CANNOT_SHOW: dict[Kind, tuple[str, ...]] = {
    Kind.NAMESPACES: (
        "loss of what was written but not synced: `kill` ends every process of the host at once, "
        "the page cache is this machine's",
        GPU,
    ),
    Kind.PROCESSES: (
        "a power cut: `kill` ends every process of the host, its kernel is this machine's",
        "a network partition: `cut` and `heal` are refused",
        "a full disk",
        "systemd itself: no timers, cgroups, systemd-run or journald; "
        "systemctl and journalctl are stand-ins",
        GPU,
    ),
}


class Phase(enum.StrEnum):
    """How far the making of a host has come; what is `making` after a crash is made anew."""

    MAKING = "making"
    MADE = "made"


class Wanted(enum.StrEnum):
    """What the operator last asked of a host."""

    RUNNING = "running"
    KILLED = "killed"


class HostState(enum.StrEnum):
    """What a host is like now, as seen from this machine.

    Attributes:
        UP: sshd answers.
        CUT: runs, but its network is cut.
        KILLED: was cut from power on purpose.
        STOPPED: its first process ended by itself.
        SILENT: runs, but sshd does not answer.
        UNMADE: an `up` was interrupted while it made this host.
    """

    UP = "up"
    CUT = "cut"
    KILLED = "killed"
    STOPPED = "stopped"
    SILENT = "silent"
    UNMADE = "unmade"


@dataclass(frozen=True)
class HostRecord:
    """One host of a lab.

    Attributes:
        index: 1 for `lab-1`.
        port: of its sshd.
        service_port: of the decode service, on the host's 127.0.0.1.
        is_cut: its network is cut, and stays so when it boots.
        tree: the serving tree, as the host sees it.
        tree_source: the payload package that the tree was copied from.
        tree_sha256: what it was like then; empty until the tree is there.
        disk_bytes: size of the host's whole writable disk; None: as large as this machine's.
        disk_is_tmpfs: the disk is a tmpfs that the lab keeps mounted on this machine.
    """

    name: str
    index: int
    address: str
    port: int
    service_port: int
    tree: str
    phase: Phase = Phase.MAKING
    wanted: Wanted = Wanted.RUNNING
    is_cut: bool = False
    tree_source: str = ""
    tree_sha256: str = ""
    disk_bytes: int | None = None
    disk_is_tmpfs: bool = False

    @property
    def serve_script(self) -> str:
        """Path of the serve script on the host."""
        return f"{self.tree}/{SERVE_SCRIPT}"


@dataclass(frozen=True)
class LabRecord:
    """One lab.

    Attributes:
        token: eight hex digits in every name that the lab has on this machine.
        network: first three octets of its addresses, such as `10.231.0`; empty for processes.
        user: the login name on the hosts.
        python: the interpreter that serves.
        why_this_kind: why the hosts are not made of namespaces; empty if they are.
        disk_on_tmpfs: the lab's directory is on a file system that can't hold hosts' disks.
        engine: further arguments of the engine in the hosts' serve script.
        gpu: name of the GPU that the hosts share with this machine; empty if they have none.
    """

    token: str
    kind: Kind
    network: str
    user: str
    python: str
    why_this_kind: str = ""
    disk_on_tmpfs: bool = False
    engine: tuple[str, ...] = ()
    gpu: str = ""
    hosts: tuple[HostRecord, ...] = ()

    def host(self, name: str) -> HostRecord:
        """Return the host of this name.

        Raises:
            LabError: there is none.
        """
        for host in self.hosts:
            if host.name == name:
                return host
        names = ", ".join(host.name for host in self.hosts) or "no hosts"
        raise LabError(
            f"unknown lab host: {name}", why=f"the lab has {names}", next_step="fleetctl lab status"
        )

    def with_host(self, changed: HostRecord) -> LabRecord:
        """Return the lab with one host replaced or added, in order of index."""
        others = [host for host in self.hosts if host.name != changed.name]
        return replace(self, hosts=tuple(sorted([*others, changed], key=lambda host: host.index)))


def record_path(directory: Path) -> Path:
    """Return where the record of the lab in `directory` is kept."""
    return directory / "lab.json"


def unfinished_record_path(directory: Path) -> Path:
    """Return where a record is written before it takes its place; the lab's lock is held then."""
    return directory / ".lab.json.new"


def write_record(directory: Path, record: LabRecord) -> None:
    """Replace the record atomically and make it durable: acts rely on it being there."""
    path, temporary = record_path(directory), unfinished_record_path(directory)
    with temporary.open("w", encoding="utf-8") as out:
        json.dump({"version": 1, **asdict(record)}, out, indent=2)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


def read_record(directory: Path) -> LabRecord | None:
    """Return the record of the lab in `directory`, or None where there is no lab.

    Raises:
        LabError: the file is there, but no record of this version.
    """
    path = record_path(directory)
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _parsed(json.loads(text))
    except (ValueError, KeyError, TypeError) as problem:
        raise LabError(
            f"cannot read the lab's record: {path}",
            why=f"{type(problem).__name__}: {problem}",
            next_step=f"fleetctl lab down --dir {directory}",
        ) from problem


def _parsed(document: dict[str, Any]) -> LabRecord:
    if document.pop("version") != 1:
        raise ValueError("not version 1")
    hosts = tuple(
        HostRecord(**{**host, "phase": Phase(host["phase"]), "wanted": Wanted(host["wanted"])})
        for host in document.pop("hosts")
    )
    document |= {"kind": Kind(document["kind"]), "engine": tuple(document.get("engine", ()))}
    return LabRecord(**document, hosts=hosts)
