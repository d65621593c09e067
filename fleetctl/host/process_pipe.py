"""A pipe to a program of this machine: a local supervisor, or an `ssh` that speaks for us."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from fleetctl.host.pipe import Received

CHUNK_BYTES = 1 << 18
EXIT_PATIENCE_S = 5.0
# So often nothing must come from a process that is gone, before its output counts as over although
# somebody still holds the other end.
SILENCES = 5
# What `nohup`, or a shell's `&`, may have told us to ignore, and every child would inherit.
INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
_RESET = """import os, signal, sys
for number in sys.argv[1].split(","):
    signal.signal(int(number), signal.SIG_DFL)
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores by itself
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])"""


class ProcessPipe:
    """Stdin, stdout and stderr of a child process, none of which ever blocks."""

    def __init__(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        # A session of its own: Ctrl-C at the terminal is for fleetctl to act on, not for the child.
        self._process = subprocess.Popen(
            with_default_signals(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(environment) if environment is not None else None,
            start_new_session=True,
        )
        self._stdin = _required(self._process.stdin)
        self._stdout = _required(self._process.stdout)
        self._stderr = _required(self._process.stderr)
        self._poll = select.poll()
        self._silences = 0
        self._open = {self._stdout.fileno(), self._stderr.fileno()}
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        for fileno in self._open:
            self._poll.register(fileno, select.POLLIN)

    def send(self, data: memoryview) -> int:
        """Send what fits without waiting; input that nobody reads any more counts as sent."""
        try:
            return os.write(self._stdin.fileno(), data[:CHUNK_BYTES])
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ValueError):
            return len(data)

    def finish_input(self) -> None:
        """Send end of file."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def receive(self, wait_s: float, *, sending: bool) -> Received:
        """Wait at most `wait_s` until something came, or could be sent."""
        if not self._open:
            return Received(b"", b"", ended=True)
        is_watching_input = sending and not self._stdin.closed
        if is_watching_input:
            self._poll.register(self._stdin.fileno(), select.POLLOUT)
        try:
            ready = {fileno for fileno, _events in self._poll.poll(wait_s * 1000)}
        finally:
            if is_watching_input:
                self._poll.unregister(self._stdin.fileno())
        stdout = self._read(self._stdout, ready)
        stderr = self._read(self._stderr, ready)
        self._silences = 0 if ready or self.is_running() else self._silences + 1
        return Received(stdout, stderr, ended=not self._open or self._silences >= SILENCES)

    def is_running(self) -> bool:
        """Say whether the process lives."""
        return self._process.poll() is None

    def close(self) -> None:
        """Close the pipes and wait for the process; it is killed if it does not end."""
        for stream in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            self._process.wait(EXIT_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self, stream: IO[bytes], ready: set[int]) -> bytes:
        fileno = stream.fileno()
        if fileno not in ready or fileno not in self._open:
            return b""
        try:
            data = os.read(fileno, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            self._open.discard(fileno)
            self._poll.unregister(fileno)
        return data


def with_default_signals(argv: Sequence[str]) -> list[str]:
    """Return a command line that starts a program with no signal ignored, whatever we ignore.

    A shell can't undo what it was started with, and `preexec_fn` is unsafe beside threads.
    """
    ignored = [str(int(each)) for each in INHERITED if signal.getsignal(each) is signal.SIG_IGN]
    if not ignored:
        return list(argv)
    return [sys.executable, "-I", "-S", "-c", _RESET, ",".join(ignored), *argv]


def _required(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("a piped stream is always there")
    return stream
