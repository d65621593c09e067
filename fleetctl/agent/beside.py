"""What a kill in the middle of a replacement left beside a file: ours goes, others' comes back."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Iterator

from fleetctl.agent.files import READ_FLAGS, put_back, read_all, remove_if_there
from fleetctl.agent.state import StateDir
from fleetctl.agent.walk import Place
from fleetctl.transaction.image import Absent
from fleetctl.transaction.step import RestoreFile


def settle(state: StateDir, undo: RestoreFile, place: Place) -> None:
    """Remove the temporary file of a change, or give it its name back if it is somebody's.

    Somebody's it is if it was moved aside in the instant of a replacement, and the kill came before
    it was looked at.
    """
    temp = undo.before.temp
    try:
        found = os.stat(temp, dir_fd=place.directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if _is_the_file_itself(place, found) or _is_known(state, undo, place, found):
        remove_if_there(place.directory_fd, temp)
    else:
        put_back(place, temp)


def _is_the_file_itself(place: Place, found: os.stat_result) -> bool:
    """Tell whether it is a second name of what is there: the kill came before it was unlinked."""
    with contextlib.suppress(FileNotFoundError):
        here = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
        return (here.st_dev, here.st_ino) == (found.st_dev, found.st_ino)
    return False


def _is_known(state: StateDir, undo: RestoreFile, place: Place, found: os.stat_result) -> bool:
    """Tell whether it is a whole or half copy of what was there before, or of ours."""
    if not stat.S_ISREG(found.st_mode):
        return False
    fd = os.open(undo.before.temp, READ_FLAGS, dir_fd=place.directory_fd)
    try:
        content = read_all(fd, found.st_size)
    finally:
        os.close(fd)
    return any(known.startswith(content) for known in _known(state, undo))


def _known(state: StateDir, undo: RestoreFile) -> Iterator[bytes]:
    image = undo.before.image
    for digest in (None if isinstance(image, Absent) else image.sha256, undo.ours):
        if isinstance(digest, str):
            with contextlib.suppress(OSError, ValueError):  # it is gone, or was altered
                yield state.get_object(digest)
