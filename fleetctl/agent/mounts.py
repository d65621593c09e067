"""Mounts: which one a file lies on, and whether something was mounted over it since."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Iterator

from fleetctl.agent.walk import Place
from fleetctl.transaction.image import Mount


@dataclass(frozen=True)
class _Row:
    """A line of the table of mounts."""

    number: int
    mount: Mount


def mount_of(fd: int) -> Mount | None:
    """Return the mount that an open file lies on; None where the kernel does not tell."""
    number = _number(fd)
    return next((row.mount for row in _rows() if row.number == number), None)


def is_mounted(mount: Mount) -> bool:
    """Tell whether a mount is there, whatever may be mounted over it."""
    return any(row.mount == mount for row in _rows())


def is_mount_point_of(mount: Mount) -> bool:
    """Tell whether a mount is there, or another one where it was.

    The same file system counts as another one where a container was made anew around it.
    """
    return any(row.mount.point == mount.point for row in _rows())


def is_mount_point(place: Place) -> bool:
    """Tell whether something is mounted on the very thing at a place, such as a single file."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(place.name, flags, dir_fd=place.directory_fd)
    except FileNotFoundError:
        return False
    try:
        return _number(fd) != _number(place.directory_fd)
    finally:
        os.close(fd)


def is_mounted_on(path: str) -> bool:
    """Say whether something is mounted at a real path, or below it."""
    return any(f"{row.mount.point.rstrip('/')}/".startswith(f"{path}/") for row in _rows())


def _number(fd: int) -> int | None:
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as facts:
            lines = [line.split() for line in facts]
    except OSError:
        return None
    return next((int(words[1]) for words in lines if words[0] == b"mnt_id:"), None)


def _rows() -> Iterator[_Row]:
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            lines = table.readlines()
    except OSError:
        return
    for line in lines:
        head, _, tail = line.partition(b" - ")
        number, _, _, root, point = head.split(b" ")[:5]
        mount = Mount(_unescaped(point), _unescaped(root), _unescaped(tail.split(b" ")[0]))
        yield _Row(int(number), mount)


def _unescaped(word: bytes) -> str:
    """Return a word as it is: the kernel writes blanks and backslashes in octal."""
    plain = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), word)
    return os.fsdecode(plain)
