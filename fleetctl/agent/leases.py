"""Leases on disk: who holds a unit, until when, and what enforces it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from fleetctl.agent.host_clock import HostClock
from fleetctl.agent.state import StateDir, sync_directory
from fleetctl.errors import LeaseHeld
from fleetctl.transaction.lease import Lease

DEADMAN_TIMER = "systemd"
DEADMAN_WATCHER = "watcher"
RECORD_BYTES = 4096
SUFFIXES = (".json", ".ending")


@dataclass(frozen=True)
class Armed:
    """What enforces a lease.

    Attributes:
        kind: `systemd` (a timer now, a unit at boot) or `watcher` (a process).
        boot_mark: a file that a reboot removes; empty for a watcher.
        timer: name of the timer unit that is armed now; empty for a watcher.
        watcher_pid: 0 for systemd.
        watcher_ticks: start time of the watcher, so that a reused pid is not taken for it.
    """

    kind: str
    boot_mark: str = ""
    timer: str = ""
    watcher_pid: int = 0
    watcher_ticks: int = 0


@dataclass(frozen=True)
class LeaseRecord:
    """A lease as the host keeps it.

    Attributes:
        lease: for people, in wall-clock time.
        boot_id: of the boot in which it was granted.
        deadline_boottime_s: when it expires, on the clock that nobody can set.
        armed: what enforces it.
        claimed: its end has begun; it can no longer be renewed. Told by the file's name, because
            a rename needs no disk space.
    """

    lease: Lease
    boot_id: str
    deadline_boottime_s: float
    armed: Armed
    claimed: bool = False


class Leases:
    """The lease records of a host.

    Records are rewritten in place, so every look takes the lease lock: half a record would be
    taken for a broken one, and a live lease ended.
    """

    def __init__(self, state: StateDir, clock: HostClock) -> None:
        self._state = state
        self._clock = clock
        self._folder = state.path / "leases"

    def all(self) -> tuple[LeaseRecord, ...]:
        """Return every readable record; an unreadable one ends with its transactions."""
        with self._state.leases_locked():
            found = [_read(path) for path in self._paths()]
        return tuple(record for record in found if record is not None)

    def unreadable(self) -> tuple[str, ...]:
        """Return the ids of records that cannot be read."""
        with self._state.leases_locked():
            return tuple(path.stem for path in self._paths() if _read(path) is None)

    def get(self, lease_id: str) -> LeaseRecord | None:
        """Return a record, if it is there."""
        with self._state.leases_locked():
            return self._get(lease_id)

    def _get(self, lease_id: str) -> LeaseRecord | None:
        return _read(self._live(lease_id)) or _read(self._ending(lease_id))

    def add(self, record: LeaseRecord) -> None:
        """Write a new record, durably."""
        self._state.write(self._live(record.lease.id), _text(record))
        sync_directory(self._folder)

    def remove(self, lease_id: str) -> None:
        """Remove a record; one that is gone is fine."""
        for path in (self._live(lease_id), self._ending(lease_id)):
            if path.exists():
                path.unlink()

    def remaining_s(self, record: LeaseRecord) -> float:
        """Return how long a lease still lasts; negative once it has expired or was claimed."""
        rebooted = record.boot_id != self._clock.boot_id()
        mark = record.armed.boot_mark
        if record.claimed or rebooted or (mark and not Path(mark).exists()):
            return -1.0
        return record.deadline_boottime_s - self._clock.boottime_s()

    def renew(self, lease_id: str, length_s: float) -> Lease:
        """Move a deadline to `length_s` from now.

        Raises:
            LeaseHeld: the lease is gone or its end has begun.
        """
        with self._state.leases_locked():
            record = self._get(lease_id)
            if record is None or record.claimed:
                raise LeaseHeld(
                    "the lease is gone",
                    why="it expired, was released or unlocked; the host restores itself then",
                    next_step="look at `fleetctl status`; a new run takes a new lease",
                )
            lease = dataclasses.replace(record.lease, until_s=self._clock.now_s() + length_s)
            deadline_s = self._clock.boottime_s() + length_s
            self._overwrite(
                dataclasses.replace(record, lease=lease, deadline_boottime_s=deadline_s)
            )
        return lease

    def set_timer(self, lease_id: str, timer: str) -> None:
        """Note which timer is armed now."""
        with self._state.leases_locked():
            record = self._get(lease_id)
            if record is not None:
                armed = dataclasses.replace(record.armed, timer=timer)
                self._overwrite(dataclasses.replace(record, armed=armed))

    def claim(self, lease_id: str, *, only_if_expired: bool) -> bool:
        """Begin the end of a lease; from here on it cannot be renewed.

        Returns:
            Whether the lease's end has begun: False while it lives (and `only_if_expired`).
        """
        with self._state.leases_locked():
            record = self._get(lease_id)
            if record is None:
                return True
            if only_if_expired and self.remaining_s(record) > 0:
                return False
            if not record.claimed:
                self._live(lease_id).rename(self._ending(lease_id))
        return True

    def _overwrite(self, record: LeaseRecord) -> None:
        """Rewrite a record in place: no space is needed on a full disk.

        A power cut may tear it, but a power cut ends every lease anyway.
        """
        path = self._ending(record.lease.id) if record.claimed else self._live(record.lease.id)
        with path.open("r+b", buffering=0) as file:
            file.write(_text(record))

    def _live(self, lease_id: str) -> Path:
        return self._folder / f"{lease_id}.json"

    def _ending(self, lease_id: str) -> Path:
        return self._folder / f"{lease_id}.ending"

    def _paths(self) -> Iterator[Path]:
        found = (path for path in self._folder.glob("*") if path.suffix in SUFFIXES)
        return iter(sorted(path for path in found if path.is_file()))  # a pipe would never end


def _text(record: LeaseRecord) -> bytes:
    fields = dataclasses.asdict(record)
    del fields["claimed"]
    return json.dumps(fields, indent=1).encode().ljust(RECORD_BYTES)


def _read(path: Path) -> LeaseRecord | None:
    try:
        data = json.loads(path.read_bytes())
        return LeaseRecord(
            lease=Lease(**data["lease"]),
            boot_id=str(data["boot_id"]),
            deadline_boottime_s=float(data["deadline_boottime_s"]),
            armed=Armed(**data["armed"]),
            claimed=path.suffix == ".ending",
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
