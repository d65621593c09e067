"""The files of a host as a value, and the same below a directory of this machine."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_MOST_LINKS = 20


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


class Files(Protocol):
    """What this package needs to know about a host's files; paths are absolute."""

    def entry(self, path: str) -> bytes | Link | None:
        """Return a file's content, a link, or None where there is neither."""
        ...

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the sorted names in a directory, none where there is no directory."""
        ...


@dataclass(frozen=True)
class FileMap:
    """Files that somebody read: path to content or link."""

    entries: Mapping[str, bytes | Link]

    def entry(self, path: str) -> bytes | Link | None:
        """Return what was read."""
        return self.entries.get(path)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the names of what was read there."""
        lead = directory.rstrip("/") + "/"
        below = (p[len(lead) :] for p in self.entries if p.startswith(lead))
        return tuple(sorted({name.partition("/")[0] for name in below}))


@dataclass(frozen=True)
class DiskFiles:
    """A directory that stands for /."""

    root: Path

    def entry(self, path: str) -> bytes | Link | None:
        """Read a file or a link; a pipe or a device, which may never end, is neither."""
        at = self.root / path.lstrip("/")
        try:
            if at.is_symlink():
                return Link(str(at.readlink()))
            return at.read_bytes() if at.is_file() else None
        except OSError:
            return None

    def names(self, directory: str) -> tuple[str, ...]:
        """List a directory."""
        try:
            return tuple(sorted(p.name for p in self.real(directory).iterdir()))
        except OSError:
            return ()

    def real(self, path: str) -> Path:
        """Return where a path of the host lies on this machine, its links followed."""
        return self.root / resolved(self, path).lstrip("/")


@dataclass(frozen=True)
class Overlay:
    """Files as they would be after some of them were written (bytes) or removed (None)."""

    below: Files
    changed: Mapping[str, bytes | None]

    def entry(self, path: str) -> bytes | Link | None:
        """Return the changed content where there is one."""
        return self.changed[path] if path in self.changed else self.below.entry(path)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the names there are then."""
        lead = directory.rstrip("/") + "/"
        here = {
            p[len(lead) :]: c for p, c in self.changed.items() if posixpath.dirname(p) + "/" == lead
        }
        kept = {n for n in self.below.names(directory) if here.get(n, b"") is not None}
        return tuple(sorted(kept | {n for n, c in here.items() if c is not None}))


def resolved(files: Files, path: str) -> str:
    """Return a path with the links of its directories and of itself followed."""
    pending = [part for part in path.split("/") if part]
    done = ""
    links = 0
    while pending:
        part = pending.pop(0)
        if part == ".":
            continue
        if part == "..":
            done = posixpath.dirname(done).rstrip("/")
            continue
        entry = files.entry(f"{done}/{part}")
        if isinstance(entry, Link) and links < _MOST_LINKS:
            links += 1
            pending = [p for p in entry.target.split("/") if p] + pending
            done = "" if entry.target.startswith("/") else done
        else:
            done = f"{done}/{part}"
    return done or "/"


def read(files: Files, path: str) -> bytes | None:
    """Return a file's content, its links followed; a link to /dev/null is an empty file."""
    real = resolved(files, path)
    if real == "/dev/null":
        return b""
    entry = files.entry(real)
    return entry if isinstance(entry, bytes) else None
