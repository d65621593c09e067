"""What a host holds now, as the agent reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from fleetctl.transaction.lease import Lease

# beside what `systemctl show` tells of a unit: what `show-environment` says all of them are given
MANAGER_ENVIRONMENT = "ManagerEnvironment"


@dataclass(frozen=True)
class PathQuery:
    """One path to look at.

    Attributes:
        path: absolute.
        content: also send the bytes (files up to `MAX_CONTENT_BYTES`).
    """

    path: str
    content: bool = False


MAX_CONTENT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Query:
    """What to observe in one round trip.

    Attributes:
        paths: files and directories to look at.
        units: systemd units; the unit files, drop-ins and environment files of each
            are reported with their contents among its `sources`.
        interpreters: Python interpreters whose version is asked for.
    """

    paths: tuple[PathQuery, ...] = ()
    units: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()


@dataclass(frozen=True)
class PathState:
    """What is at a path.

    Attributes:
        path: as asked.
        real_path: with every symlink followed.
        kind: `file`, `directory`, `absent`, `other` (device, fifo, socket) or `unreadable`.
        link_target: text of the symlink, where the path itself is one.
        sha256: of a file's content.
        content: a file's bytes, where they were asked for.
        mode: permission bits.
        owner: user name, or the number where there is none.
        group: group name, or the number where there is none.
        size_bytes: of a file.
        mtime_ns: modification time.
        links: hard links; a file with more than one is never replaced.
        xattr_sha256: digest over all extended attributes; empty where there are none.
        problem: why it is unreadable.
    """

    path: str
    real_path: str
    kind: str
    link_target: str | None = None
    sha256: str | None = None
    content: bytes | None = None
    mode: int | None = None
    owner: str | None = None
    group: str | None = None
    size_bytes: int | None = None
    mtime_ns: int | None = None
    links: int | None = None
    xattr_sha256: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class UnitState:
    """A unit as `systemctl show` gives it.

    Attributes:
        unit: full name.
        properties: what systemctl answered; a stand-in for systemctl may leave some out.
        sources: unit file, drop-ins and environment files, with contents.
        problem: why nothing could be asked.
    """

    unit: str
    properties: Mapping[str, str]
    sources: tuple[PathState, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class HostFacts:
    """What kind of machine this is.

    Attributes:
        python: version of the interpreter that runs the agent, such as `3.11.2`.
        interpreters: (path, version, or the problem in words) for each one asked for.
        kernel: release.
        machine_id: of /etc/machine-id; empty where there is none.
        boot_id: changes at each boot.
        user: whom the agent runs as.
        systemd: version line, empty where systemd does not run.
        state_bytes_free: disk space left where fleetctl keeps its state.
        gpus: lines of `nvidia-smi -L`; empty where it is not present.
        gpu_driver: version of the NVIDIA driver; empty where there is none.
        now_s: the host's wall clock.
    """

    python: str
    interpreters: tuple[tuple[str, str], ...]
    kernel: str
    machine_id: str
    boot_id: str
    user: str
    systemd: str
    state_bytes_free: int
    gpus: tuple[str, ...]
    gpu_driver: str
    now_s: float


@dataclass(frozen=True)
class HeldFile:
    """A file that a transaction changed, and can bring back.

    Attributes:
        path: real path.
        before_sha256: None where there was no file.
        before_object: path of the before-image on the host, for restoring by hand.
    """

    path: str
    before_sha256: str | None
    before_object: str


@dataclass(frozen=True)
class HeldTransaction:
    """A transaction that is not over: open, kept, in conflict or damaged.

    Attributes:
        id: of the transaction.
        run_id: the run it belongs to.
        holder: `user@machine`.
        purpose: one clause.
        unit: of its lease; may be empty.
        state: a value of `journal.State`.
        since_s: when it was opened.
        steps: a line for each step.
        files: what it can bring back.
        conflicts: files that somebody else changed.
        problem: what is wrong with its journal, or why the last restore failed.
    """

    id: str
    run_id: str
    holder: str
    purpose: str
    unit: str
    state: str
    since_s: float
    steps: tuple[str, ...]
    files: tuple[HeldFile, ...]
    conflicts: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class HeldLease:
    """A lease on the host.

    Attributes:
        lease: as granted and renewed.
        expires_in_s: negative when the dead-man is due.
        deadman: `systemd` (timer and boot unit) or `watcher` (a process; ends at a reboot).
        transactions: ids of the transactions under it.
    """

    lease: Lease
    expires_in_s: float
    deadman: str
    transactions: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """Everything fleetctl holds on a host."""

    leases: tuple[HeldLease, ...]
    transactions: tuple[HeldTransaction, ...]


@dataclass(frozen=True)
class Observed:
    """The answer to a `Query`, taken in one go."""

    paths: tuple[PathState, ...]
    units: tuple[UnitState, ...]
    facts: HostFacts
    status: Status


@dataclass(frozen=True)
class Process:
    """A process of a unit.

    Attributes:
        pid: its number on the host.
        parent: pid of its parent.
        executable: where /proc/PID/exe points; empty where it may not be read.
        started_ticks: start time since boot, so that a reused pid is noticed.
        flags: (name, value) of the environment variables asked for that were set when
            the process was started; others are never sent.
        environment_readable: whether `flags` could be read at all.
    """

    pid: int
    parent: int
    executable: str
    started_ticks: int
    flags: tuple[tuple[str, str], ...]
    environment_readable: bool


@dataclass(frozen=True)
class UnitReport:
    """How a unit fares.

    Attributes:
        unit: full name.
        active_state: such as `active`.
        sub_state: such as `running` or `auto-restart`.
        result: such as `success` or `exit-code`.
        restarts: NRestarts; None where systemctl does not say.
        invocation: InvocationID, or pid and start time where there is none.
        main_pid: 0 where there is none.
        processes: every live process of its control group.
        log_lines: the last lines this invocation wrote.
    """

    unit: str
    active_state: str
    sub_state: str
    result: str
    restarts: int | None
    invocation: str
    main_pid: int
    processes: tuple[Process, ...]
    log_lines: tuple[str, ...]
