"""Bytecode of a module: where it lies, and how it can never be taken for current.

Python believes a `.pyc` whose header repeats the source's size and whole-second mtime, and one
marked unchecked whatever the source says. So a changed module gets an mtime that no header
repeats, and its bytecode is removed; the undo puts the old files back as they were.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath

from fleetctl.agent.files import Look, look, remove, replace, set_metadata
from fleetctl.agent.state import StateDir
from fleetctl.agent.walk import PathRefused, Place, if_there, resolved
from fleetctl.transaction.image import Absent, FileBefore, FileImage


def directories(paths: tuple[str, ...], prefix: str | None) -> list[str]:
    """Return where interpreters keep the bytecode of a module.

    Args:
        paths: of the source: as imported, and with symlinks followed.
        prefix: PYTHONPYCACHEPREFIX, where the service has one.
    """
    parents = [str(PurePosixPath(path).parent) for path in paths]
    beside = [f"{parent.rstrip('/')}/__pycache__" for parent in parents]
    under = [f"{prefix.rstrip('/')}{parent}" for parent in parents] if prefix else []
    return list(dict.fromkeys([*beside, *under]))


def files_of(path: str, folders: list[str]) -> list[str]:
    """Return the bytecode files of a module, for every interpreter and optimisation level."""
    if not path.endswith(".py"):
        return []
    stem = PurePosixPath(path).stem
    name = re.compile(re.escape(stem) + r"\.[A-Za-z0-9_-]+(\.opt-[A-Za-z0-9]+)?\.pyc")
    return sorted(
        f"{folder}/{entry}"
        for folder in folders
        for entry in _entries(folder)
        if name.fullmatch(entry)
    )


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def source_mtime_s(content: bytes) -> int | None:
    """Return the mtime a bytecode file claims for its source; None when it claims none."""
    if len(content) < 16:
        return None
    flags, mtime_s = struct.unpack("<4xII4x", content[:16])
    return int(mtime_s) if flags == 0 else None


def unused_mtime_s(now_s: float, taken: set[int]) -> int:
    """Return a whole second at or after now that no file or header repeats."""
    mtime_s = int(now_s)
    while mtime_s in taken:
        mtime_s += 1
    return mtime_s


def capture(asked: str, folders: list[str]) -> list[tuple[str, Look]]:
    """Return every bytecode file of a module, with contents.

    Args:
        asked: path of the source as imported.
        folders: real paths of the directories.

    Raises:
        PathRefused: one of them is no regular file.
    """
    found = []
    for file in files_of(asked, folders):
        with resolved(file, follow=False) as place:
            seen = look(place)
        if not isinstance(seen, Absent):
            found.append((file, seen))
    return found


def real_directories(paths: tuple[str, ...], prefix: str | None) -> list[str]:
    """Return `directories` as they are now: later a link on the way may lead elsewhere."""
    if not paths[0].endswith(".py"):
        return []
    real = [os.path.realpath(folder) for folder in directories(paths, prefix)]
    return list(dict.fromkeys(real))


def missing_directories(folders: list[str]) -> tuple[str, ...]:
    """Return the bytecode directories that do not exist yet, innermost first.

    What an interpreter makes there is removed again by the undo. Below a prefix it makes the
    directories above, too.
    """
    missing = []
    for folder in folders:
        path = Path(folder)
        above = path.parents if path.name != "__pycache__" else ()
        missing += [str(p) for p in (path, *above) if not p.exists()]
    return tuple(dict.fromkeys(missing))


def _folders(before: FileBefore, prefix: str | None) -> list[str]:
    """Return where the bytecode lay; a journal of an earlier fleetctl does not say."""
    return list(before.bytecode_directories) or real_directories(
        (before.asked, before.path), prefix
    )


def clear(before: FileBefore, prefix: str | None) -> None:
    """Remove every bytecode file of a module."""
    for file in files_of(before.asked, _folders(before, prefix)):
        with ExitStack() as stack:
            place = if_there(stack, file)
            if place is not None:
                remove(place)


def bring_back(state: StateDir, before: FileBefore, prefix: str | None) -> None:
    """Leave exactly the bytecode files, and directories, that were there before.

    Where somebody took the directory away it stays away: an interpreter makes it anew. Where a link
    took its place nothing is done: what it leads to was never ours.
    """
    kept = dict(before.bytecode)
    for file in files_of(before.asked, _folders(before, prefix)):
        with ExitStack() as stack:
            place = if_there(stack, file)
            if place is not None and (file not in kept or not _is(place, kept[file])):
                _file_gone(place)
    for file, image in before.bytecode:
        with ExitStack() as stack:
            place = if_there(stack, file)
            if place is not None and not _is(place, image):
                _file_back(state, before.temp, place, image)
    for folder in before.missing_directories:
        with ExitStack() as stack:
            place = if_there(stack, folder)
            if place is not None:
                _directory_gone(place)


def _file_back(state: StateDir, temp: str, place: Place, image: FileImage) -> None:
    finish = partial(set_metadata, image=image)
    content = state.get_object(image.sha256)
    with contextlib.suppress(IsADirectoryError):  # it stays; an interpreter does without
        replace(place, temp, content, finish, free=False)


def _file_gone(place: Place) -> None:
    with contextlib.suppress(IsADirectoryError):  # no interpreter takes a directory for bytecode
        remove(place)


def _directory_gone(place: Place) -> None:
    with contextlib.suppress(OSError):  # somebody else's files are in it, or it was never made
        os.rmdir(place.name, dir_fd=place.directory_fd)


def _is(place: Place, image: FileImage) -> bool:
    try:
        seen = look(place)
    except PathRefused:
        return False  # something else of this name, or it got another hard link
    return not isinstance(seen, Absent) and seen.image == image
