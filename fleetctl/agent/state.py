"""The agent's own directory on the host: locks, objects, small records.

STATE/                   0700
  agent/DIGEST.pyz       the agent of each fleetctl that was here
  lock                   flock: whoever changes the host or a journal holds it
  lease-lock             flock: held for the instant in which a lease record is changed
  objects/SHA256         before-images and new files
  leases/ID.json         live leases; ID.ending once their end has begun
  transactions/ID/       journal, reserve of disk space, by-hand.sh
  scratch/               files that are being written, under the lock
  staging/               files that are being checked, without it
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from fleetctl.clock import Clock
from fleetctl.errors import HostError, LeaseHeld

FOLDERS = ("agent", "objects", "leases", "transactions", "scratch", "staging")
OURS = (*FOLDERS, "lock", "lease-lock", "made-wants", "unlocked")
STALE_S = 600.0


class StateRefused(HostError):
    """The agent's directory is not safely ours."""


class Busy(LeaseHeld):
    """Another fleetctl process is at work on this host."""


class StateDir:
    """The agent's directory; makes it on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Make the folders, 0700, and refuse a directory that others could write to.

        Raises:
            StateRefused: that, or it holds somebody's things and was never ours.
        """
        self._refuse_strangers()
        self._own(self.path)
        for name in FOLDERS:
            self._own(self.path / name)

    def _refuse_strangers(self) -> None:
        """Refuse to make somebody's directory ours: its mode would change, and it would fill up."""
        if self.exists or not self.path.is_dir() or not os.access(self.path, os.R_OK):
            return
        theirs = sorted({path.name for path in self.path.iterdir()} - {*OURS, "lost+found"})
        if theirs:
            raise StateRefused(
                f"{self.path} is no directory of fleetctl's",
                why=f"it holds {theirs[0]}",
                next_step="let the login's FLEETCTL_STATE name an empty directory",
            )

    def remove(self) -> None:
        """Remove what is ours, and the directory unless somebody put something else into it."""
        for name in OURS:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def _own(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise _wrong_kind(folder, "directory") from None
        found = folder.lstat()
        if folder.is_symlink() or found.st_uid != os.geteuid():
            raise StateRefused(
                f"{folder} does not belong to {os.geteuid()} alone",
                why=f"it is a symlink or owned by {found.st_uid}",
                next_step="remove it, or let the login's FLEETCTL_STATE name another directory",
            )
        if found.st_mode & 0o077:
            folder.chmod(0o700)

    @property
    def exists(self) -> bool:
        """Tell whether fleetctl ever worked here."""
        return (self.path / "transactions").is_dir()

    @contextmanager
    def locked(self, clock: Clock, *, wait_s: float | None) -> Iterator[None]:
        """Hold the lock under which hosts and journals are changed.

        Args:
            clock: to wait by.
            wait_s: how long to wait for another process; None for as long as it takes.

        Raises:
            Busy: another process held it all the time.
        """
        fd = _open_lock(self.path / "lock")
        try:
            _flock(fd, clock, wait_s)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def leases_locked(self) -> Iterator[None]:
        """Hold the lock for the instant in which a lease record is read and rewritten."""
        fd = _open_lock(self.path / "lease-lock")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def object_path(self, digest: str) -> Path:
        """Return where content of this sha256 lies."""
        return self.path / "objects" / digest

    def put_object(self, content: bytes) -> str:
        """Store content durably and return its sha256; the folder is synced by `sync_objects`."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.object_path(digest)
        try:
            intact = path.read_bytes() == content
        except FileNotFoundError:
            intact = False
        if not intact:
            self.write(path, content)
        return digest

    def get_object(self, digest: str) -> bytes:
        """Return content by its sha256.

        Raises:
            FileNotFoundError: it is not there.
            ValueError: it was altered.
        """
        content = self.object_path(digest).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{self.object_path(digest)} was altered")
        return content

    def sync_objects(self) -> None:
        """Make the names of the objects durable."""
        sync_directory(self.path / "objects")

    def write(self, path: Path, content: bytes) -> None:
        """Write a file of our own atomically; its content is durable, its name not yet."""
        temp = self.path / "scratch" / secrets.token_hex(16)
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, content)
            os.fsync(fd)
            temp.rename(path)
        except BaseException:
            temp.unlink()  # it would lie there until the next run
            raise
        finally:
            os.close(fd)

    @contextmanager
    def staging(self, clock: Clock) -> Iterator[Path]:
        """Yield a directory for files that are only looked at; needs no lock."""
        folder = self.path / "staging" / f"{clock.now_s():.0f}-{secrets.token_hex(16)}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def clear(self, clock: Clock) -> None:
        """Remove what killed processes left; the lock must be held."""
        for temp in (self.path / "scratch").iterdir():
            if temp.is_dir():
                shutil.rmtree(temp)
            else:
                temp.unlink()
        for folder in (self.path / "staging").iterdir():
            started_s = folder.name.partition("-")[0]
            is_ours = started_s.isdigit() and folder.is_dir()
            if is_ours and abs(clock.now_s() - float(started_s)) > STALE_S:
                shutil.rmtree(folder)


def _wrong_kind(path: Path, wanted: str) -> StateRefused:
    return StateRefused(
        f"{path} is no {wanted}",
        why=f"fleetctl keeps a {wanted} of this name there, and something else took its place",
        next_step=f"look at it (`ls -ld {path}`), move it away and repeat; nothing was changed",
    )


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise _wrong_kind(path, "regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _wrong_kind(path, "regular file")
    return fd


def check_kinds(state: StateDir) -> None:
    """Refuse to go on where something in the directory is of another kind than ours.

    Raises:
        StateRefused: the first one, with its path.
    """
    for folder in ("objects", "leases", "transactions/*"):
        for path in sorted(state.path.glob(f"{folder}/*")):
            _check_kind(path, stat.S_IFREG, "regular file")
    for path in sorted((state.path / "transactions").glob("*")):
        _check_kind(path, stat.S_IFDIR, "directory")


def _check_kind(path: Path, kind: int, name: str) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return  # it was tidied away just now
    if stat.S_IFMT(found.st_mode) != kind:
        raise _wrong_kind(path, name)


def write_all(fd: int, content: bytes) -> None:
    """Write every byte."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(path: Path) -> None:
    """Make names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _flock(fd: int, clock: Clock, wait_s: float | None) -> None:
    if wait_s is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return
    deadline_s = clock.monotonic_s() + wait_s
    while not _flock_now(fd):
        if clock.monotonic_s() > deadline_s:
            raise Busy(
                "another fleetctl process is at work on this host",
                why=f"it did not finish within {wait_s:.0f} s",
                next_step="look at `fleetctl status` and try again",
            )
        clock.sleep(0.05)


def _flock_now(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
