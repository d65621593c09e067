"""Exchange two names in one step, and wait for whoever still writes to what was moved aside.

Between a last look at a file and its replacement somebody may write to it. Exchanged instead of
overwritten, the file can be looked at once more when nobody finds it by its name any longer, and
exchanged back if it is not what it was taken for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal

from fleetctl.clock import SystemClock

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
WRITERS_DEADLINE_S = 2.0
POLL_S = 0.01
# the C library, the kernel or the file system does not know how
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


def exchange(directory_fd: int, one: str, other: str) -> bool:
    """Exchange two names of a directory; return False where that cannot be done in one step.

    Raises:
        OSError: one of them is not there, the file system is read-only, a file immutable.
    """
    return _rename(directory_fd, one, other, RENAME_EXCHANGE)


def move_to_free_name(directory_fd: int, name: str, free: str) -> None:
    """Rename to a name that nothing has, whatever it is that is renamed.

    Raises:
        FileExistsError: something has the name.
        OSError: what is to be renamed is not there, or may not be.
    """
    if not _rename(directory_fd, name, free, RENAME_NOREPLACE):
        fd = directory_fd
        os.link(name, free, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        os.unlink(name, dir_fd=fd)


def _rename(directory_fd: int, old: str, new: str, flags: int) -> bool:
    try:
        import ctypes  # noqa: PLC0415 - a Python built without it can do all the rest

        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):
        return False
    if rename(directory_fd, os.fsencode(old), directory_fd, os.fsencode(new), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), new)


def wait_for_writers(fd: int) -> None:
    """Wait until nobody has a file open for writing, for two seconds at most.

    The kernel grants a read lease on a file only if nobody has. Where it grants none at all (some
    file systems, other people's files) there is no way to know, and no wait.
    """
    # the kernel signals who holds a lease when somebody opens the file; SIGIO would end us
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + WRITERS_DEADLINE_S
    while clock.monotonic_s() < deadline_s:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:  # noqa: PERF203 - it is asked again after a pause
            if error.errno != errno.EAGAIN:
                return
            clock.sleep(POLL_S)
        else:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return
