"""Locks that leave no file behind: flock on directories that exist anyway."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is created if missing; ends with the process."""
    descriptor = _locked(directory)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(directory: Path) -> int:
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
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
