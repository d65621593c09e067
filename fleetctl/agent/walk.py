"""From a path to the directory that holds it, without being led astray.

Every component is opened relative to the last one and symlinks are followed by hand, so nobody can
swap a directory for a link between the check and the act. A link is followed where its owner could
not gain by it: root's, one's own, or one whose owner also owns what it leads to.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Iterator

MAX_LINKS = 40


class PathRefused(Exception):
    """A path that will not be acted on; the message says why."""


class NoDirectory(PathRefused):
    """A component of a path is there, and no directory."""


class BecameLink(NoDirectory):
    """A directory on a path has become a symlink since."""


@dataclass(frozen=True)
class Place:
    """Where a file is, or would be.

    Attributes:
        directory_fd: the directory, open; valid inside `resolved`.
        directory: its real path.
        name: of the file in it.
    """

    directory_fd: int
    directory: str
    name: str

    @property
    def path(self) -> str:
        """Return the real path."""
        return f"{self.directory.rstrip('/')}/{self.name}"


@contextmanager
def resolved(path: str, *, follow: bool = True) -> Iterator[Place]:
    """Yield the place that `path` leads to.

    Args:
        path: absolute.
        follow: follow symlinks; otherwise one on the way is refused, and one at the end is the
            caller's to look at.

    Raises:
        PathRefused: a link that must not be followed, or a component that is no directory.
        FileNotFoundError: a directory on the way does not exist.
    """
    walker = _Walker(follow=follow)
    try:
        yield walker.walk(path)
    finally:
        walker.close()


def if_there(stack: ExitStack, path: str) -> Place | None:
    """Return the place of a real path, valid as long as the stack; None where nothing holds it.

    Nothing on the way is followed: what has become a symlink holds what is somebody else's.
    """
    try:
        return stack.enter_context(resolved(path, follow=False))
    except (FileNotFoundError, NoDirectory):
        return None


def is_there(path: str) -> bool:
    """Tell whether a path leads to anything, be it a link to nothing.

    Raises:
        OSError: nobody can tell, which is no sign that it is gone.
    """
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return True


class _Walker:
    """One walk; holds the directories from the root down to here."""

    def __init__(self, *, follow: bool) -> None:
        self._follow = follow
        self._fds = [os.open("/", os.O_PATH | os.O_DIRECTORY)]
        self._names: list[str] = []
        self._links = 0
        self._link_owners: set[int] = set()

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def walk(self, path: str) -> Place:
        pending = _parts(path)
        while True:
            name = pending.pop(0)
            last = not pending and not self._follow
            target = None if last else self._link_target(name)
            if target is not None:
                pending = _parts(target) + pending
                if target.startswith("/"):
                    self._ascend_to_root()
            elif pending:
                self._enter(name)
            else:
                break
        return self._arrive(path, name)

    def _arrive(self, path: str, name: str) -> Place:
        if name in {"..", "."}:
            raise PathRefused(f"{path} leads to a directory")
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fds[-1])
        self._fds.append(fd)
        place = Place(fd, "/" + "/".join(self._names), name)
        self._refuse_gain(path, place)
        return place

    def _link_target(self, name: str) -> str | None:
        """Return where a symlink leads; None for anything else, or nothing."""
        try:
            found = os.stat(name, dir_fd=self._fds[-1], follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISLNK(found.st_mode):
            return None
        self._links += 1
        here = "/" + "/".join([*self._names, name])
        if not self._follow:
            target = os.readlink(name, dir_fd=self._fds[-1])
            raise BecameLink(f"{here} has become a symlink to {target}")
        if self._links > MAX_LINKS:
            raise PathRefused(f"too many symlinks at {here}")
        if found.st_uid not in {0, os.geteuid()}:
            self._link_owners.add(found.st_uid)
        return os.readlink(name, dir_fd=self._fds[-1])

    def _enter(self, name: str) -> None:
        if name == ".":
            return
        if name == "..":
            self._leave()
            return
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._fds[-1])
        except NotADirectoryError:
            here = "/" + "/".join([*self._names, name])
            raise NoDirectory(f"{here} is not a directory") from None
        self._fds.append(fd)
        self._names.append(name)

    def _leave(self) -> None:
        if self._names:
            self._names.pop()
            os.close(self._fds.pop())

    def _ascend_to_root(self) -> None:
        while len(self._fds) > 1:
            os.close(self._fds.pop())
        self._names.clear()

    def _refuse_gain(self, path: str, place: Place) -> None:
        """Refuse links by which their owner would have us write where he can't."""
        if not self._link_owners:
            return
        owners = {os.fstat(place.directory_fd).st_uid}
        with suppress(FileNotFoundError):
            owners.add(os.stat(place.name, dir_fd=place.directory_fd).st_uid)
        if owners != self._link_owners:
            raise PathRefused(
                f"{path} goes through another user's symlink to {place.path}, which is not theirs"
            )


def _parts(path: str) -> list[str]:
    """Return the components of a path; `.` and empty ones mean nothing."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return parts or ["."]


def is_within(path: str, roots: tuple[str, ...]) -> bool:
    """Tell whether a real path lies in one of the directories (their real paths)."""
    parents = {str(parent) for parent in PurePosixPath(path).parents}
    return any(root in parents for root in roots)
