"""Bring files and directories back, and never through what somebody put in their way.

A directory on the way may have gone, become a file or a symlink, or lie below a mount since. What a
path leads to then was never ours: nothing is written there, and people are told what to do.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial

from fleetctl.agent import bytecode
from fleetctl.agent.beside import settle
from fleetctl.agent.conflict import conflict, diff
from fleetctl.agent.files import (
    ChangedMeanwhile,
    Look,
    look,
    remove,
    remove_expected,
    remove_tree,
    repair_metadata,
    replace,
    set_metadata,
)
from fleetctl.agent.manner import Manner, OnConflict, Tally
from fleetctl.agent.mounts import (
    is_mount_point,
    is_mount_point_of,
    is_mounted,
    is_mounted_on,
    mount_of,
)
from fleetctl.agent.state import StateDir
from fleetctl.agent.walk import BecameLink, NoDirectory, PathRefused, Place, is_there, resolved
from fleetctl.transaction.image import Absent, FileBefore, Mount
from fleetctl.transaction.outcome import Conflict
from fleetctl.transaction.step import RemoveDirectory, RemoveLent, RestoreFile

GONE = "its directory is gone; put it back or make it again, then `fleetctl rollback --force`"
PUT_BACK = "put the directory in its place again, then `fleetctl rollback`"


class PathsBack:
    """Performs the undos of files and directories of one transaction."""

    def __init__(self, state: StateDir, manner: Manner, tally: Tally) -> None:
        self._state = state
        self._manner = manner
        self._tally = tally

    def file_back(self, undo: RestoreFile) -> None:
        """Bring a file back, with its bytecode, or report who has it now.

        Raises:
            OSError, PathRefused, ValueError: why it could not be done; it is to be tried again.
        """
        before = undo.before
        with ExitStack() as stack:
            try:
                place = stack.enter_context(resolved(before.path, follow=False))
            except (FileNotFoundError, NoDirectory) as error:
                if self._is_missed(undo, error):
                    return
            else:
                if self._is_elsewhere(before.path, before.mount, place):
                    return
                self._at_place(undo, place)
        bytecode.bring_back(self._state, before, undo.bytecode_prefix)
        self._tally.files.append(before.path)

    def _is_missed(self, undo: RestoreFile, error: OSError | PathRefused) -> bool:
        """Report that the directory of a file is not what it was.

        What is to be absent is absent then, unless a link leads to it still. Nobody knows what a
        directory was like that is gone, so only people can make it again.
        """
        before = undo.before
        if self._is_unmounted(before.path, before.mount):
            return True
        is_link = isinstance(error, BecameLink)
        if isinstance(before.image, Absent) and not (is_link and is_there(before.path)):
            return False
        why = f"{error}; {PUT_BACK}" if is_link else GONE
        if self._manner.on_conflict is OnConflict.OVERWRITE:
            raise ValueError(why)
        self._tally.conflicts.append(conflict(self._state, undo, why))
        return True

    def _is_elsewhere(self, path: str, mount: Mount | None, place: Place) -> bool:
        """Report that a path leads to another file system than it did, or to a mounted file.

        What was changed lies below the mount, and is found again once that is gone.

        Raises:
            ValueError: it does; it is tried again until somebody settles for it.
        """
        now = mount_of(place.directory_fd) if mount is not None else None
        if mount is not None and now is not None and now != mount:
            if self._is_unmounted(path, mount):
                return True
            if is_mounted(mount) or now.point != mount.point:
                return self._in_the_way(path, f"something is mounted over it, at {now.point}")
        if is_mount_point(place):
            return self._in_the_way(path, "something is mounted on it")
        return False

    def _is_unmounted(self, path: str, mount: Mount | None) -> bool:
        if mount is None or is_mount_point_of(mount):
            return False
        return self._in_the_way(path, f"its file system is no longer mounted at {mount.point}")

    def _in_the_way(self, path: str, why: str) -> bool:
        if self._manner.on_conflict is not OnConflict.KEEP:
            raise ValueError(f"{why}; it comes back when that is undone")
        self._report(path, why)
        return True

    def _report(self, path: str, why: str) -> None:
        self._tally.conflicts.append(Conflict(path, why, before_object="", mode=None))

    def _at_place(self, undo: RestoreFile, place: Place) -> None:
        settle(self._state, undo, place)
        wanted = undo.before.image
        seen = _look_or_why(place)
        found = seen.image.sha256 if isinstance(seen, Look) else seen
        if isinstance(wanted, Absent):
            if isinstance(seen, Absent):
                return
        elif isinstance(seen, Look) and found == wanted.sha256:
            if seen.image != wanted:
                repair_metadata(place, wanted)
            return
        if found != undo.ours and self._manner.on_conflict is not OnConflict.OVERWRITE:
            self._in_conflict(undo, seen)
            return
        try:
            self._bring_back(undo.before, place, seen)
        except ChangedMeanwhile:
            self._in_conflict(undo, _look_or_why(place))

    def _in_conflict(self, undo: RestoreFile, seen: Look | Absent | str) -> None:
        found = conflict(self._state, undo, diff(self._state, undo, seen))
        self._tally.conflicts.append(found)

    def _bring_back(self, before: FileBefore, place: Place, seen: Look | Absent | str) -> None:
        """Bring a file back in the place of what was seen there, and of nothing else."""
        self._tally.changed = True
        is_forced = self._manner.on_conflict is OnConflict.OVERWRITE
        found = seen.image.sha256 if isinstance(seen, Look) and not is_forced else None
        if not isinstance(before.image, Absent):
            content = self._state.get_object(before.image.sha256)
            finish = partial(set_metadata, image=before.image)
            is_free = isinstance(seen, Absent)
            replace(place, before.temp, content, finish, free=is_free, expected_sha256=found)
        elif found is None:
            remove(place)
        else:
            remove_expected(place, before.temp, found)

    def directory_gone(self, undo: RemoveDirectory) -> None:
        """Remove a directory that a step made, or report what is in it or in its place.

        Raises:
            OSError, PathRefused, ValueError: as for `file_back`.
        """
        with ExitStack() as stack:
            place = self._reach(stack, undo)
            if place is None:
                return
            try:
                os.rmdir(place.name, dir_fd=place.directory_fd)
                os.fsync(place.directory_fd)
            except FileNotFoundError:
                return
            except NotADirectoryError:
                self._report(undo.path, "it is no directory any more")
            except OSError:
                if not os.listdir(undo.path):
                    raise
                self._report(undo.path, "somebody put files into it")

    def lent_gone(self, undo: RemoveLent) -> None:
        """Remove what the service left, whatever it is, or report that something is mounted there.

        Through the parent's descriptor no link leads astray, and one that stands there goes itself.

        Raises:
            OSError, PathRefused, ValueError: as for `file_back`.
        """
        if is_mounted_on(undo.path):
            self._report(undo.path, "something is mounted there")
            return
        with ExitStack() as stack:
            place = self._reach(stack, undo)
            if place is not None and is_there(place.path):
                remove_tree(place)

    def _reach(self, stack: ExitStack, undo: RemoveDirectory | RemoveLent) -> Place | None:
        """Return where a directory is, valid as long as the stack; None where nothing is to do.

        With the directory that it was in it has gone; behind a link in its place it has not.
        """
        try:
            place = stack.enter_context(resolved(undo.path, follow=False))
        except (FileNotFoundError, NoDirectory) as error:
            is_reported = self._is_unmounted(undo.path, undo.mount)
            if not is_reported and isinstance(error, BecameLink) and is_there(undo.path):
                self._report(undo.path, f"{error}; {PUT_BACK}")
            return None
        return None if self._is_elsewhere(undo.path, undo.mount, place) else place


def _look_or_why(place: Place) -> Look | Absent | str:
    """Return the file, or why it is none of a single name that nobody writes to."""
    try:
        return look(place)
    except PathRefused as error:
        return str(error)
