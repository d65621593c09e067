"""Files that are either old or new, never half, also after a power cut."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.errors import StoreError


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: temporary file beside it, fsync, rename, fsync the folder.

    Raises:
        StoreError: the disk is full, the folder is not ours, or it is gone.
    """
    with store_errors(path):
        _write_atomic(path, content)


def _write_atomic(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line and fsync it; a torn last line of an earlier crash is ended first.

    Raises:
        StoreError: the disk is full, the folder is not ours, or it is gone.
    """
    with store_errors(path), path.open("ab+") as stream:
        if stream.tell() and not _ends_with_newline(path):
            stream.write(b"\n")
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Say in our words what the system says about writing `path`."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"can't write {path}",
            why=error.strerror or str(error),
            next_step="free space there, or name another folder with --runs",
        ) from error


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
