"""What the agent's verbs answer."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.transaction.lease import Lease


@dataclass(frozen=True)
class Granted:
    """A lease was taken and its dead-man is armed.

    Attributes:
        lease: with the host's times.
        deadman: `systemd` (timer and boot unit) or `watcher` (a process; ends at a reboot).
    """

    lease: Lease
    deadman: str


@dataclass(frozen=True)
class ProvenRestart:
    """A unit was restarted and stayed up.

    Attributes:
        unit: full name.
        invocation_before: identity of the instance that was stopped; empty if none ran.
        invocation: identity of the new one.
        main_pid: of the new one; 0 where there is none.
        seconds: from the stop to the end of the soak.
    """

    unit: str
    invocation_before: str
    invocation: str
    main_pid: int
    seconds: float


@dataclass(frozen=True)
class Applied:
    """Every step happened; the host goes back by itself unless the lease is renewed."""

    transaction: str
    granted: Granted
    restarts: tuple[ProvenRestart, ...]


@dataclass(frozen=True)
class Kept:
    """The change stays.

    Attributes:
        transactions: all those kept under the lease.
        already: they had been kept before; committing twice is the same as once.
    """

    transactions: tuple[str, ...]
    already: bool


@dataclass(frozen=True)
class Conflict:
    """A file that somebody else changed, left as it is.

    Attributes:
        path: real path.
        diff: from what fleetctl wrote to what is there now (unified; a note for binary files).
        before_object: where the before-image lies on the host; empty when there was no file.
        mode: of the before-image, where there is one.
    """

    path: str
    diff: str
    before_object: str
    mode: int | None


@dataclass(frozen=True)
class Restored:
    """How undoing transactions ended.

    Attributes:
        transactions: those that are over now; empty when nothing was held.
        files: real paths brought back or found to be as before.
        restarts: units restarted on the files of before.
        stopped: units stopped, as they had been before.
        conflicts: files left to a person.
        problems: what could not be brought back and why; the dead-man goes on trying.
    """

    transactions: tuple[str, ...]
    files: tuple[str, ...]
    restarts: tuple[ProvenRestart, ...]
    stopped: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class StagedFile:
    """A file to check on the host before anything is changed.

    Attributes:
        path: where it is going to be; its name decides how it is checked
            (`.py`: compiled, `.sh` or a shell shebang: `bash -n`, unit files: systemd-analyze).
        content: its bytes.
    """

    path: str
    content: bytes


@dataclass(frozen=True)
class Finding:
    """What the host says about a staged file.

    Attributes:
        path: as staged.
        checked_by: the program that looked, such as `/usr/bin/python3.11` or `bash`.
        fatal: it must not be deployed.
        message: the program's own words; the first line says where.
        line: 1-based, where the program names one.
    """

    path: str
    checked_by: str
    fatal: bool
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Forgotten:
    """Every trace of fleetctl was removed.

    Attributes:
        removed: paths and units that are gone.
    """

    removed: tuple[str, ...]
