"""Files that are either old or new, never half, also after a power cut."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: temporary file beside it, fsync, rename, fsync the folder."""
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
    """Append one line and fsync it; a torn last line of an earlier crash is ended first."""
    with path.open("ab+") as stream:
        if stream.tell() and not _ends_with_newline(path):
            stream.write(b"\n")
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


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
