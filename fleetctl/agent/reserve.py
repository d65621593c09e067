"""Disk space and inodes for the undo, taken before the first change and given back to it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Mapping, Sequence

from fleetctl.transaction.image import FileBefore, FileImage
from fleetctl.transaction.journal import Change, Opened
from fleetctl.transaction.step import RemoveFile, WriteFile

SLACK_BYTES = 256 * 1024


def plan(folder: Path, changes: Sequence[Change]) -> tuple[tuple[str, int], ...]:
    """Return where to hold how many bytes: a file on each file system that is written to.

    An empty file for each one that the undo makes anew holds its inode, too.

    Args:
        folder: of the transaction; takes the reserve of its own file system.
        changes: with before-images.
    """
    own = folder.parent.stat().st_dev
    sizes: dict[int, int] = {own: SLACK_BYTES}
    places = {own: str(folder / "reserve")}
    empty: list[str] = []
    for change, before in ((c, c.before) for c in changes if isinstance(c.before, FileBefore)):
        parent = _existing(Path(before.path).parent)
        device = parent.stat().st_dev
        places.setdefault(device, _beside(parent))
        sizes[device] = sizes.get(device, SLACK_BYTES) + _undo_bytes(before)
        anew = len(before.bytecode) + isinstance(change.step, RemoveFile)
        empty += [_beside(folder if device == own else parent) for _ in range(anew)]
    held = [(places[device], size) for device, size in sizes.items()]
    return (*held, *((path, 0) for path in empty))


def _beside(folder: Path) -> str:
    return f"{folder}/.fleetctl-{secrets.token_hex(16)}"


def take(opened: Opened, contents: Mapping[str, bytes]) -> None:
    """Hold the space; for a moment also that of the new files, so that both are known to fit.

    Raises:
        OSError: there is not enough.
    """
    steps = [c.step for c in opened.changes if isinstance(c.step, WriteFile)]
    new_bytes = sum(len(contents[step.content_sha256]) for step in steps)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for path, size in opened.reserves:
        fd = os.open(path, flags, 0o600)
        try:
            if size:
                os.posix_fallocate(fd, 0, size + new_bytes)
                os.ftruncate(fd, size)
        finally:
            os.close(fd)


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.is_dir())


def _undo_bytes(before: FileBefore) -> int:
    images = [image for _, image in before.bytecode]
    if isinstance(before.image, FileImage):
        images.append(before.image)
    return sum(image.size_bytes + 4096 for image in images)
