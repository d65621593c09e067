"""The control group of a lab: what finds and ends every process of a host.

Only cgroup v2 is used. On a machine with the v1 controllers ("hybrid") the v2 hierarchy is
mounted beside them and serves as well: the hosts need no controllers.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.machine import mounts

DEATH_DEADLINE_S = 30.0
POLL_S = 0.005


def find_cgroup2() -> Path | None:
    """Return where this machine has cgroup v2 mounted, or None."""
    points = [Path(mount.point) for mount in mounts() if mount.kind == "cgroup2"]
    return points[-1] if points else None


@dataclass(frozen=True)
class ControlGroup:
    """One control group and everything below it."""

    path: Path

    @property
    def joining_file(self) -> Path:
        """The file a process writes 0 to in order to join."""
        return self.path / "cgroup.procs"

    def create(self) -> None:
        """Create the group and its parents; keeps what is there."""
        self.path.mkdir(parents=True, exist_ok=True)

    def has_processes(self) -> bool:
        """Tell whether any process lives in the group or below."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text(encoding="ascii")
        except OSError:
            return False

    def kill(self, clock: Clock) -> None:
        """End every process of the group at once and wait until they are gone.

        Raises:
            LabError: some survived.
        """
        deadline_s = clock.monotonic_s() + DEATH_DEADLINE_S
        while self.has_processes():
            self._kill_once()
            if clock.monotonic_s() > deadline_s:
                raise LabError(
                    f"processes of {self.path} don't die",
                    why=f"{sorted(self._pids())} outlived SIGKILL for {DEATH_DEADLINE_S:g} s",
                    next_step="look at them with `ps`; a process in state D waits for a device",
                )
            clock.sleep(POLL_S)

    def _kill_once(self) -> None:
        try:
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")
        except FileNotFoundError:  # Linux before 5.14
            for pid in self._pids():
                _kill_pid(pid)
        except OSError:
            return  # the group ended meanwhile

    def _pids(self) -> set[int]:
        found: set[int] = set()
        for file in self.path.rglob("cgroup.procs"):
            try:
                found.update(int(line) for line in file.read_text(encoding="ascii").split())
            except OSError:
                continue
        return found

    def remove(self, clock: Clock) -> None:
        """Remove the empty group and everything below it.

        Raises:
            LabError: it stays busy.
        """
        deadline_s = clock.monotonic_s() + DEATH_DEADLINE_S
        while self.path.exists():
            try:
                _remove_tree(self.path)
            except OSError as busy:
                if clock.monotonic_s() > deadline_s:
                    raise LabError(
                        f"cannot remove the control group {self.path}",
                        why=str(busy),
                        next_step="fleetctl lab down",
                    ) from busy
                clock.sleep(POLL_S)


def _kill_pid(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _remove_tree(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir():
            _remove_tree(entry)
    path.rmdir()
