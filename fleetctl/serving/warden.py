"""The parent of a user's program: when fleetctl ends, however it ends, all of it ends, too.

Run as a file by `program.py`, never imported: `python -I -S /proc/self/fd/N`, which says nothing
of fleetctl, so that `pkill -f fleetctl` leaves it alive to do its work. Its stdin is one end of a
socket whose other end only fleetctl holds: there it is told what to run, and end of file means
that fleetctl is gone or wants an end, also after a SIGKILL. Orphans of the program come to this
process, a daemon that it made, too: what has no children left has left nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_AGAIN_S = 0.05
# what hangs in the kernel, or runs as somebody else, can't be ended from here
_GIVE_UP_S = 5.0
_NOT_STARTED = 127
_libc = ctypes.CDLL(None)


def main() -> int:
    """Run the program, end all of it, and return its exit code; 128 + N after signal N."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with socket.socket(fileno=os.dup(0)) as fleetctl:
        kill_after_s, *argv = _told(fleetctl)
        try:
            ward = Ward(argv)
        except OSError as error:
            fleetctl.sendall(f"failed {error.errno}".encode())
            return _NOT_STARTED
        try:
            with contextlib.suppress(OSError):  # it has ended already: the wait notices
                fleetctl.sendall(f"started {ward.pid}".encode())
            ward.wait(fleetctl)
        finally:
            ward.end(float(kill_after_s))
    return ward.exit_code


def _told(fleetctl: socket.socket) -> list[bytes]:
    """Return KILL_AFTER_S and ARGV: eight bytes that say how long, then each with a NUL."""
    with fleetctl.makefile("rb") as stream:
        size = int.from_bytes(stream.read(8), "big")
        told = stream.read(size)
    if not size or len(told) < size:
        raise SystemExit(_NOT_STARTED)  # fleetctl is gone already
    return told.split(b"\0")[:-1]


class Ward:
    """The program and everything that descends from it.

    Attributes:
        pid: of the program, which leads a session of its own.
        exit_code: of the program once it has ended.
    """

    def __init__(self, argv: list[bytes]) -> None:
        """Start the program; raises OSError."""
        self._wake, bell = os.pipe()
        for end in (self._wake, bell):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(bell)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _do_nothing)
        self._program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            env=_environ(),
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
        self.pid = self._program.pid
        self.exit_code = -1

    @property
    def has_ended(self) -> bool:
        """Whether the program itself has ended."""
        return self._program.returncode is not None

    def wait(self, fleetctl: socket.socket) -> None:
        """Wait for the program's end, for fleetctl's, or for a signal to end."""
        while not self.has_ended:
            ready, _, _ = select.select([fleetctl.fileno(), self._wake], [], [])
            signals = os.read(self._wake, 4096) if self._wake in ready else b""
            self._reap()
            if fleetctl.fileno() in ready or set(signals) - {signal.SIGCHLD}:
                return

    def end(self, kill_after_s: float) -> None:
        """Ask the program and all it started to end, then make them."""
        until_s = time.monotonic() + kill_after_s
        if not self.has_ended:
            _send(signal.SIGTERM, _descendants())
        while not self.has_ended and (left_s := until_s - time.monotonic()) > 0:
            self._sleep(left_s)
        until_s = time.monotonic() + _GIVE_UP_S
        while self._reap() and time.monotonic() < until_s:
            # children only: their numbers can't be anybody else's before we reap them, and
            # what they leave behind are our children the next time
            _send(signal.SIGKILL, _children().get(os.getpid(), []))
            self._sleep(_LOOK_AGAIN_S)

    def _sleep(self, most_s: float) -> None:
        """Wait for a child's end."""
        select.select([self._wake], [], [], most_s)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        self._reap()

    def _reap(self) -> bool:
        """Take leave of children that have ended; return whether there are others."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self._program.returncode = code
                    self.exit_code = 128 - code if code < 0 else code
        except ChildProcessError:
            return False


def _do_nothing(*_: object) -> None:
    """Be called for signals that are read from the wakeup descriptor."""


def _die_with_parent() -> None:
    """Let the program, at least, end when somebody kills this process."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _environ() -> dict[bytes, bytes]:
    """Return the environment as it was given, before this interpreter could change it."""
    given = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in given if b"=" in entry)


def _descendants() -> Iterator[int]:
    children = _children()
    found = list(children.get(os.getpid(), []))
    while found:
        pid = found.pop()
        yield pid
        found += children.get(pid, [])


def _children() -> dict[int, list[int]]:
    """Return the children of every process that has any."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(folder.name))
    return children


def _send(number: signal.Signals, pids: Iterator[int] | list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


if __name__ == "__main__":
    raise SystemExit(main())
