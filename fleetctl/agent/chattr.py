"""The flags of a file that `chattr` sets and `lsattr` shows: no part of its mode or attributes."""

from __future__ import annotations

import errno
import fcntl
import struct

GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS
SET_FLAGS = 0x40086602  # FS_IOC_SETFLAGS

IMMUTABLE, APPEND_ONLY, VERITY = 0x10, 0x20, 0x100000
UNCHANGEABLE = IMMUTABLE | APPEND_ONLY | VERITY
# secure deletion, undelete, compress, synchronous, no dump, no atime, no compression, journalled
# data, no tail merging, no copy-on-write, direct access: what a file can be given after it was made
KEPT_FLAGS = 0x1 | 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x400 | 0x4000 | 0x8000 | 0x800000 | 0x2000000


UNREADABLE = {errno.EIO, errno.ENOMEM, errno.ESTALE}


def read_flags(fd: int) -> int | None:
    """Return the flags of an open file; None where the file system has none.

    Raises:
        OSError: they cannot be read now, which is no sign that there are none.
    """
    try:
        (flags,) = struct.unpack("I4x", fcntl.ioctl(fd, GET_FLAGS, b"\0" * 8))
    except OSError as error:
        if error.errno in UNREADABLE:
            raise
        return None
    return int(flags)


def keep_flags(fd: int, flags: int) -> None:
    """Give an open file these of the flags that are kept; touches nothing equal.

    Raises:
        OSError: the file system does not take one of them.
    """
    now = read_flags(fd)
    if now is not None and now & KEPT_FLAGS != flags:
        wanted = now & ~KEPT_FLAGS | flags
        fcntl.ioctl(fd, SET_FLAGS, struct.pack("I4x", wanted))
