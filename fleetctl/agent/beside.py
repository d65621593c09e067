"""What a kill in the middle of a replacement left beside a file: ours goes, others' comes back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat

from fleetctl.agent.files import READ_FLAGS, put_back, read_all, remove_if_there
from fleetctl.agent.state import StateDir
from fleetctl.agent.walk import PathRefused, Place
from fleetctl.transaction.image import Absent
from fleetctl.transaction.step import RestoreFile


def settle(state: StateDir, undo: RestoreFile, place: Place) -> None:
    """Remove the temporary file of a change, or give it its name back if it is somebody's.

    Somebody's it is if it was moved aside in the instant of a replacement, and the kill came before
    it was looked at.

    Raises:
        PathRefused: what has the name is somebody's, too: people decide which of the two stays.
        OSError, ValueError: nobody can tell whose it is: what is known of ours cannot be read.
    """
    temp = undo.before.temp
    try:
        found = os.stat(temp, dir_fd=place.directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if _is_the_file_itself(place, found) or _is_known(state, undo, place, found):
        remove_if_there(place.directory_fd, temp)
        return
    if not _is_ours_or_gone(undo, place):
        raise PathRefused(
            f"{place.path} and {place.directory}/{temp} were both written by somebody else; "
            f"keep one of them as {place.name} and remove the other"
        )
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
    content = _content(place, undo.before.temp)
    known = _known(undo)
    if hashlib.sha256(content).hexdigest() in known:
        return True
    return any(state.get_object(digest).startswith(content) for digest in known)


def _is_ours_or_gone(undo: RestoreFile, place: Place) -> bool:
    """Tell whether the name holds nothing that somebody else has written."""
    try:
        found = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    return hashlib.sha256(_content(place, place.name)).hexdigest() in _known(undo)


def _content(place: Place, name: str) -> bytes:
    fd = os.open(name, READ_FLAGS, dir_fd=place.directory_fd)
    try:
        return read_all(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def _known(undo: RestoreFile) -> list[str]:
    """Return the digests of what was there before, and of ours."""
    image = undo.before.image
    digests = (None if isinstance(image, Absent) else image.sha256, undo.ours)
    return [digest for digest in digests if isinstance(digest, str)]
