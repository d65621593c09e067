"""Files: look at one exactly, replace one atomically, bring one back.

Everything is a plain system call on names relative to an open directory, so that a kill between
any two of them leaves the old file or the new one, never a mix.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from typing import Callable

from fleetctl.agent.chattr import KEPT_FLAGS, keep_flags, read_flags
from fleetctl.agent.exchange import exchange, move_to_free_name, wait_for_writers
from fleetctl.agent.state import write_all
from fleetctl.agent.walk import PathRefused, Place
from fleetctl.transaction.image import ABSENT, Absent, FileImage

NEW_FILE_MODE = 0o644
NO_REGULAR_FILE = {errno.ELOOP, errno.ENXIO}  # a symlink, a socket
HAS_NONE = {errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}  # the file system knows no attributes
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Look:
    """A file and its bytes, from one open descriptor."""

    image: FileImage
    content: bytes


def look(place: Place) -> Look | Absent:
    """Return the regular file at a place, or that there is none.

    Raises:
        PathRefused: something else is there, it has further hard links, or it keeps changing.
        PermissionError: it may not be read.
    """
    try:
        fd = os.open(place.name, READ_FLAGS, dir_fd=place.directory_fd)
    except FileNotFoundError:
        return ABSENT
    except OSError as error:
        if error.errno in NO_REGULAR_FILE:
            raise PathRefused(f"{place.path} is not a regular file") from None
        raise
    try:
        return _look(fd, place.path)
    finally:
        os.close(fd)


def _look(fd: int, path: str) -> Look:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise PathRefused(f"{path} is not a regular file")
    if found.st_nlink > 1:
        raise PathRefused(f"{path} has {found.st_nlink} hard links; replacing it would split them")
    content = read_all(fd, found.st_size)
    again = os.fstat(fd)
    if (again.st_size, again.st_mtime_ns) != (len(content), found.st_mtime_ns):
        raise PathRefused(f"{path} is being written to")
    digest = hashlib.sha256(content).hexdigest()
    return Look(_image(fd, found, digest), content)


def _image(fd: int, found: os.stat_result, digest: str) -> FileImage:
    flags = read_flags(fd)
    return FileImage(
        sha256=digest,
        size_bytes=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        mtime_ns=found.st_mtime_ns,
        xattrs=read_xattrs(fd),
        flags=None if flags is None else flags & KEPT_FLAGS,
    )


def read_all(fd: int, size_hint: int) -> bytes:
    """Return everything from where a descriptor stands."""
    pieces: list[bytes] = []
    while True:
        piece = os.read(fd, max(65536, size_hint + 1))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def read_xattrs(fd: int) -> tuple[tuple[str, str], ...]:
    """Return (name, value in hex) of every extended attribute that can be read, sorted.

    Raises:
        OSError: they cannot be read now, which is no sign that there are none.
    """
    try:
        names = sorted(os.listxattr(fd))
    except OSError as error:
        if error.errno in HAS_NONE:
            return ()
        raise
    return tuple((name, os.getxattr(fd, name).hex()) for name in names)


class ChangedMeanwhile(Exception):
    """Somebody wrote to a file in the instant in which it was replaced; it is as they left it."""


def replace(
    place: Place,
    temp: str,
    content: bytes,
    finish: Callable[[int], None],
    *,
    free: bool,
    expected_sha256: str | None = None,
) -> None:
    """Put a file with this content at a place, atomically.

    Args:
        place: where.
        temp: name of the temporary file beside it; one that is there is ours, and removed.
        content: its bytes.
        finish: gives the new file, open, its metadata.
        free: nothing may be there; a file that appeared meanwhile is not replaced.
        expected_sha256: of the bytes that may be replaced; None for any.

    Raises:
        FileExistsError: `free`, and something is there.
        ChangedMeanwhile: other bytes were there; they are again.
        OSError: no space, read-only, immutable, an owner that may not be given away.
    """
    remove_if_there(place.directory_fd, temp)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temp, flags, 0o600, dir_fd=place.directory_fd)
    try:
        write_all(fd, content)
        finish(fd)
        os.fsync(fd)
    finally:
        os.close(fd)
    is_aside = _take_the_name(place, temp, free=free, keep_other=expected_sha256 is not None)
    if is_aside and expected_sha256 is not None:
        _drop_or_put_back(place, temp, expected_sha256)
    os.fsync(place.directory_fd)


def _take_the_name(place: Place, temp: str, *, free: bool, keep_other: bool) -> bool:
    """Give the new file its name; return whether what had it is at the temporary name now."""
    fd = place.directory_fd
    try:
        if free:
            move_to_free_name(fd, temp, place.name)
        elif keep_other and exchange(fd, temp, place.name):
            return True
        else:
            os.rename(temp, place.name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:  # what has the name cannot be replaced: a directory, an immutable file
        remove_if_there(fd, temp)
        raise
    return False


def _drop_or_put_back(place: Place, temp: str, expected_sha256: str) -> None:
    """Remove what was exchanged, or put it back if it is not what it was taken for."""
    try:
        _check_expected(place, temp, expected_sha256)
    except BaseException:  # also a signal that ends us while we wait for a writer
        put_back(place, temp)
        raise
    os.unlink(temp, dir_fd=place.directory_fd)


def put_back(place: Place, temp: str) -> None:
    """Give what was moved aside its name again, whatever it is; what has the name goes.

    Where names cannot be exchanged nothing was moved aside.
    """
    fd = place.directory_fd
    try:
        exchange(fd, temp, place.name)
    except FileNotFoundError:  # somebody removed what had the name
        move_to_free_name(fd, temp, place.name)
    else:
        remove_if_there(fd, temp)
    os.fsync(fd)


def _check_expected(place: Place, temp: str, expected_sha256: str) -> None:
    """Raise `ChangedMeanwhile` if what was moved aside is anything but a file with these bytes.

    Raises:
        OSError: it cannot be read, and may be ours.
    """
    if _digest_of(place, temp) != expected_sha256:
        raise ChangedMeanwhile(f"{place.path} was changed by somebody else in the meantime")


def _digest_of(place: Place, temp: str) -> str | None:
    """Return the digest of a file that nobody writes to any more; None for no regular file."""
    try:
        fd = os.open(temp, READ_FLAGS, dir_fd=place.directory_fd)
    except OSError as error:
        if error.errno in NO_REGULAR_FILE:
            return None
        raise
    try:
        wait_for_writers(fd)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        return hashlib.sha256(read_all(fd, status.st_size)).hexdigest()
    finally:
        os.close(fd)


def set_metadata(fd: int, image: FileImage) -> None:
    """Give an open file the owner, mode, attributes, mtime and flags of an image.

    Touches nothing that is equal.
    """
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != (image.uid, image.gid):
        os.fchown(fd, image.uid, image.gid)
    _set_xattrs(fd, image.xattrs)
    if stat.S_IMODE(os.fstat(fd).st_mode) != image.mode:  # chown and ACLs change it
        os.fchmod(fd, image.mode)
    if os.fstat(fd).st_mtime_ns != image.mtime_ns:
        os.utime(fd, ns=(os.fstat(fd).st_atime_ns, image.mtime_ns))
    if image.flags is not None:
        keep_flags(fd, image.flags)


def set_new(fd: int, mode: int, mtime_s: int) -> None:
    """Give a file that had no predecessor its mode and mtime; the rest is the directory's say."""
    os.fchmod(fd, mode)
    os.utime(fd, ns=(os.fstat(fd).st_atime_ns, mtime_s * 1_000_000_000))


def _set_xattrs(fd: int, wanted: tuple[tuple[str, str], ...]) -> None:
    current = dict(read_xattrs(fd))
    for name in current.keys() - dict(wanted).keys():
        os.removexattr(fd, name)
    for name, value in wanted:
        if current.get(name) != value:
            os.setxattr(fd, name, bytes.fromhex(value))


def repair_metadata(place: Place, image: FileImage) -> None:
    """Give a file that has the right bytes the metadata of an image."""
    fd = os.open(place.name, READ_FLAGS, dir_fd=place.directory_fd)
    try:
        set_metadata(fd, image)
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(place: Place) -> None:
    """Remove a file, durably; one that is gone already is fine."""
    remove_if_there(place.directory_fd, place.name)
    os.fsync(place.directory_fd)


def remove_expected(place: Place, temp: str, expected_sha256: str) -> None:
    """Remove a file, durably, if it holds these bytes; one that is gone already is fine.

    Raises:
        ChangedMeanwhile: it holds other bytes, and stays.
    """
    fd = place.directory_fd
    remove_if_there(fd, temp)
    try:
        os.rename(place.name, temp, src_dir_fd=fd, dst_dir_fd=fd)
    except FileNotFoundError:
        return
    try:
        _check_expected(place, temp, expected_sha256)
    except BaseException:  # also a signal that ends us while we wait for a writer
        move_to_free_name(fd, temp, place.name)
        os.fsync(fd)
        raise
    os.unlink(temp, dir_fd=fd)
    os.fsync(fd)


def remove_if_there(directory_fd: int, name: str) -> None:
    """Unlink a name, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory_fd)


def remove_tree(place: Place) -> None:
    """Remove what is at a place, durably: a directory with all in it, a link without its target.

    Raises:
        FileNotFoundError: nothing is there.
        OSError: something of it can't be removed.
    """
    found = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(f"/proc/self/fd/{place.directory_fd}/{place.name}")
    else:
        remove_if_there(place.directory_fd, place.name)
    os.fsync(place.directory_fd)
