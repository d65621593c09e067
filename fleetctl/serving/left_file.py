"""Read what a user's program left at a path, which may be anything: never wait, never flood."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

from fleetctl.errors import InputError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_left_file(path: Path, most_bytes: int) -> str | None:
    """Return the text of a regular file, also behind a symbolic link; None where nothing is.

    Args:
        path: where the program was told to write.
        most_bytes: what it may write.

    Raises:
        InputError: there is something else, it is larger, or it can't be read.
    """
    if not os.path.lexists(path):
        return None
    try:
        # before it is opened, too: opening a device may do something
        _refuse_other_kinds(path, path.stat())
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(handle, "rb", buffering=0) as file:
            _refuse_other_kinds(path, os.fstat(handle))
            content = _read(file.fileno(), most_bytes + 1)
    except OSError as error:
        raise _unusable(path, f"it can't be read: {error.strerror}") from error
    if len(content) > most_bytes:
        raise _unusable(path, f"it is larger than {most_bytes:,} bytes")
    return content.decode("utf-8", "replace")


def make_way(path: Path) -> None:
    """Let a file be written at `path`: remove what is there, but move a directory aside.

    Raises:
        OSError: the folder is not ours.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    path.rename(next(name for name in names if not os.path.lexists(name)))


def _read(handle: int, most_bytes: int) -> bytes:
    """Read on to the end or to a size: what a file says of its size may be wrong."""
    parts: list[bytes] = []
    left = most_bytes
    while left and (part := os.read(handle, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _refuse_other_kinds(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something")
        raise _unusable(path, f"it is {kind}, no file")


def _unusable(path: Path, why: str) -> InputError:
    return InputError(
        f"what the workload left as {path.name} can't be used",
        why=why,
        next_step="write one JSON document to a plain file at the path in FLEETCTL_RESULT",
    )
