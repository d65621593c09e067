"""Locks that leave no file behind: flock on directories that exist anyway."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from fleetctl.errors import LabError


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is created if missing; ends with the process.

    Raises:
        LabError: the directory can't be made or opened.
    """
    descriptor = _locked(directory)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(directory: Path) -> int:
    while True:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LabError(
                f"{directory} can't hold a lab",
                why=error.strerror or str(error),
                next_step="name another folder with --dir",
            ) from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_still(directory, descriptor):
            return descriptor
        # `lab down` removed the directory while we waited for it
        os.close(descriptor)


def _is_still(directory: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(directory.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
