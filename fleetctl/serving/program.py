"""A user's program on this machine that never outlives us, however we end."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_WARDEN = Path(__file__).with_name("warden.py")
# not the link in a virtual environment, which may be named after us
_PYTHON = str(Path(sys.executable).resolve())
# between a polite end and one that can't be refused
KILL_AFTER_S = 3.0
# longer than the warden tries, which gives up on what hangs in the kernel
_GIVE_UP_S = 10.0


class Program:
    """A program with everything it starts; leaving the block ends what is left of it.

    Attributes:
        kill_after_s: how long it may take to end when it is asked to.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | str | None,
        environ: Mapping[str, str],
        output: tuple[int, int],
        kill_after_s: float = KILL_AFTER_S,
    ) -> None:
        """Start it, without a shell and without input.

        Args:
            argv: the program and its arguments.
            cwd: where it runs; None for here.
            environ: all its variables.
            output: descriptors for its stdout and stderr.
            kill_after_s: how long it may take to end when it is asked to.

        Raises:
            OSError: it can't be started.
        """
        self.kill_after_s = kill_after_s
        told = b"".join(_one_of_many(each) for each in (f"{kill_after_s}", *argv))
        self._lifeline, theirs = socket.socketpair()
        with theirs, _WARDEN.open("rb") as warden:
            try:
                self._warden = subprocess.Popen(
                    # no word of ours in its command line: `pkill -f fleetctl` has to miss it
                    [_PYTHON, "-I", "-S", f"/proc/self/fd/{warden.fileno()}"],
                    pass_fds=(warden.fileno(),),
                    stdin=theirs.fileno(),
                    stdout=output[0],
                    stderr=output[1],
                    cwd=cwd,
                    env=dict(environ),
                    start_new_session=True,
                )
            except OSError:
                self._lifeline.close()
                raise
        self._pid = self._started(told)

    def _started(self, told: bytes) -> int:
        """Tell the warden what to run, wait until that runs, and return its pid."""
        said, number = "", ""
        with contextlib.suppress(ConnectionError):  # it has ended: with what, is said below
            self._lifeline.sendall(len(told).to_bytes(8, "big") + told)
            said, _, number = self._lifeline.recv(64).decode().partition(" ")
        if said == "started":
            return int(number)
        self._lifeline.close()
        self._warden.wait()
        if said == "failed":
            raise OSError(int(number), os.strerror(int(number)))
        raise OSError(f"its parent process ended at once with {self._warden.returncode}")

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the program and all it started: first politely, then for good."""
        self._lifeline.close()
        # not a clock's sleep, which may raise: nothing may keep us from the end
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._warden.wait(self.kill_after_s + _GIVE_UP_S)
        if self._warden.returncode is None:
            self._warden.kill()
            self._warden.wait()
        if self._warden.returncode < 0:  # somebody killed it, and nobody has ended the rest
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and all it started with it."""
        return self._warden.poll() is not None

    @property
    def exit_code(self) -> int:
        """Its exit code after the end, 128 + N after signal N."""
        code = self._warden.returncode
        return 128 - code if code < 0 else code


def _one_of_many(argument: str) -> bytes:
    if "\0" in argument:
        raise OSError(errno.EINVAL, "an argument can't hold a null character")
    return os.fsencode(argument) + b"\0"
