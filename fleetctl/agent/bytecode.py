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
from functools import partial
from pathlib import Path, PurePosixPath

from fleetctl.agent.files import Look, look, remove, replace, set_metadata
from fleetctl.agent.state import StateDir
from fleetctl.agent.walk import NoDirectory, PathRefused, Place, resolved
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


def capture(paths: tuple[str, ...], prefix: str | None) -> list[tuple[str, Look]]:
    """Return every bytecode file of a module, with contents."""
    found = []
    for file in files_of(paths[0], directories(paths, prefix)):
        with resolved(file) as place:
            seen = look(place)
        if not isinstance(seen, Absent):
            found.append((file, seen))
    return found


def missing_directories(paths: tuple[str, ...], prefix: str | None) -> tuple[str, ...]:
    """Return the bytecode directories that do not exist yet, innermost first.

    What an interpreter makes there is removed again by the undo.
    """
    if not paths[0].endswith(".py"):
        return ()
    missing = []
    for folder in directories(paths, prefix):
        path = Path(folder)
        above = path.parents if prefix and path.name != "__pycache__" else ()
        missing += [str(p) for p in (path, *above) if not p.exists()]
    return tuple(dict.fromkeys(missing))


def clear(paths: tuple[str, ...], prefix: str | None) -> None:
    """Remove every bytecode file of a module."""
    for file in files_of(paths[0], directories(paths, prefix)):
        with resolved(file) as place:
            remove(place)


def bring_back(state: StateDir, before: FileBefore, prefix: str | None) -> None:
    """Leave exactly the bytecode files, and directories, that were there before.

    Where somebody took the directory away it stays away: an interpreter makes it anew.
    """
    paths = (before.asked, before.path)
    kept = dict(before.bytecode)
    for file in files_of(paths[0], directories(paths, prefix)):
        with resolved(file) as place:
            if file not in kept or not _is(place, kept[file]):
                _file_gone(place)
    for file, image in before.bytecode:
        _file_back(state, before.temp, file, image)
    for folder in before.missing_directories:
        try:
            os.rmdir(folder)
        except OSError:  # noqa: PERF203 - somebody else's files are in it, or it was never made
            continue


def _file_back(state: StateDir, temp: str, file: str, image: FileImage) -> None:
    try:
        with resolved(file) as place:
            if not _is(place, image):
                finish = partial(set_metadata, image=image)
                replace(place, temp, state.get_object(image.sha256), finish, free=False)
    except IsADirectoryError:
        return
    except (FileNotFoundError, NoDirectory):
        if os.path.isdir(os.path.dirname(file)):
            raise


def _file_gone(place: Place) -> None:
    with contextlib.suppress(IsADirectoryError):  # no interpreter takes a directory for bytecode
        remove(place)


def _is(place: Place, image: FileImage) -> bool:
    try:
        seen = look(place)
    except PathRefused:
        return False  # something else of this name, or it got another hard link
    return not isinstance(seen, Absent) and seen.image == image
