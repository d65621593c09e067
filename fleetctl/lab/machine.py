"""What the lab reads about this machine: mounts, network links, processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NET = Path("/sys/class/net")
IFF_UP = 1


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo.

    Attributes:
        device: `major:minor` of the file system.
    """

    point: str
    device: str
    kind: str


def mounts() -> list[Mount]:
    """Return the mounts this process sees, oldest first."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [_parsed(line) for line in lines.splitlines()]


def _parsed(line: str) -> Mount:
    left, _, right = line.partition(" - ")
    fields = left.split(" ")
    return Mount(point=_unescaped(fields[4]), device=fields[2], kind=right.split(" ")[0])


def _unescaped(text: str) -> str:
    # mountinfo writes blank, tab, newline and backslash as three octal digits
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)


def mount_points_below(directory: Path) -> list[str]:
    """Return mount points in `directory`, newest first: the order to unmount them in."""
    prefix = f"{directory}/"
    return [m.point for m in reversed(mounts()) if f"{m.point}/".startswith(prefix)]


def links_named(prefix: str) -> list[str]:
    """Return the names of network links that start with `prefix`."""
    return sorted(path.name for path in NET.iterdir() if path.name.startswith(prefix))


def link_is_up(name: str) -> bool:
    """Tell whether a link exists and is set up."""
    try:
        return bool(int((NET / name / "flags").read_text(encoding="ascii"), 16) & IFF_UP)
    except OSError:
        return False


def link_alias(name: str) -> str:
    """Return the free text somebody attached to a link; empty if none."""
    try:
        return (NET / name / "ifalias").read_text(encoding="utf-8").rstrip("\n")
    except OSError:
        return ""


@dataclass(frozen=True)
class Process:
    """One process of this machine, as /proc shows it.

    Attributes:
        state: one letter, as `ps` prints it.
    """

    pid: int
    parent_pid: int
    state: str

    @property
    def is_zombie(self) -> bool:
        """Whether it is over."""
        return self.state in "ZX"

    @property
    def is_still(self) -> bool:
        """Whether it starts no other process until it is told to go on."""
        return self.state in "TtDZX"


def processes() -> dict[int, Process]:
    """Return all processes this process may see, by pid."""
    found = (_process(entry) for entry in _numbered(Path("/proc")))
    return {process.pid: process for process in found if process is not None}


def _numbered(directory: Path) -> Iterator[Path]:
    return (entry for entry in directory.iterdir() if entry.name.isdecimal())


def _process(entry: Path) -> Process | None:
    try:
        text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the name in parentheses may contain anything, so the fields are counted from its end
    fields = text.rpartition(")")[2].split()
    return Process(pid=int(entry.name), parent_pid=int(fields[1]), state=fields[0])


def pids_matching(file: str, pattern: re.Pattern[bytes]) -> set[int]:
    """Return processes in whose `cmdline` or `environ`, as /proc has it, a pattern occurs."""
    found = set()
    for entry in _numbered(Path("/proc")):
        try:
            content = (entry / file).read_bytes()
        except OSError:
            continue  # gone, or another user's
        if pattern.search(content):
            found.add(int(entry.name))
    return found


def descendants(roots: set[int], known: dict[int, Process]) -> set[int]:
    """Return `roots` and every process below them that is still a process."""
    found = {pid for pid in roots if pid in known}
    while True:
        more = {p.pid for p in known.values() if p.parent_pid in found} - found
        if not more:
            return {pid for pid in found if not known[pid].is_zombie}
        found |= more
