"""Looking at processes, and waiting for what must become true."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from fleetctl.clock import SystemClock


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        todo += children.get(todo[0], [])
        found += children.get(todo.pop(0), [])
    return found


def is_running(pid: int) -> bool:
    """Say whether a process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with(word: str) -> list[int]:
    """Return the live processes whose command line holds a word, as a whole argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0") and is_running(
                int(path.parent.name)
            ):
                found.append(int(path.parent.name))
    return found


def signal_all(pids: Iterable[int], signal_number: int) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def wait_until(is_true: Callable[[], bool], *, deadline_s: float = 30.0) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + deadline_s
    while not is_true():
        assert clock.monotonic_s() < until_s, "it did not become true in time"
        clock.sleep(0.02)


def pid_in(path: Path, *, deadline_s: float = 20.0) -> int:
    """Wait for a pid to be written."""
    wait_until(lambda: path.exists() and path.read_text().strip() != "", deadline_s=deadline_s)
    return int(path.read_text())
