"""A pipe to a command over a paramiko channel: one loop drains both outputs, nothing ever blocks.

No `makefile` objects are made: the finalizer of paramiko's stdin file takes the channel's lock,
and a garbage collection in the wrong moment would wait for itself (paramiko issue 2685).
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable

import paramiko

from fleetctl.host.pipe import Received

CHUNK_BYTES = 1 << 18
# The channel tells when data has come, but not when its window has opened.
WINDOW_POLL_S = 0.01
# So often nothing must come after the exit status, before the output counts as over although
# somebody on the host still holds it open; sshd may send the status before the last bytes.
SILENCES = 5


class ChannelPipe:
    """Stdin, stdout and stderr of one session; it holds the channel until `close`.

    Args:
        channel: the session, its command started.
        let_go: takes the channel over when the pipe is closed.
    """

    def __init__(
        self, channel: paramiko.Channel, let_go: Callable[[paramiko.Channel], None]
    ) -> None:
        self._channel = channel
        self._let_go = let_go
        self._silences = 0
        channel.settimeout(0.0)
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def send(self, data: memoryview) -> int:
        """Send what the window allows; input that nobody reads any more counts as sent."""
        sent = 0
        while sent < len(data) and sent < CHUNK_BYTES:
            if self._channel.closed or self._channel.eof_received:
                return len(data)
            if not self._channel.send_ready():
                break
            try:
                sent += self._channel.send(bytes(data[sent : sent + CHUNK_BYTES]))
            except TimeoutError:
                break
            except OSError:
                return len(data)
        return sent

    def finish_input(self) -> None:
        """Send end of file."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def receive(self, wait_s: float, *, sending: bool) -> Received:
        """Wait until something came, or a moment if something is to be sent."""
        if not self._has_data() and not self._is_over():
            self._poll.poll(1000 * self._patience_s(wait_s, sending=sending))
        is_over = self._is_over()
        stdout = stderr = b""
        with contextlib.suppress(TimeoutError, OSError, EOFError):
            if self._channel.recv_ready():
                stdout = self._channel.recv(CHUNK_BYTES)
            if self._channel.recv_stderr_ready():
                stderr = self._channel.recv_stderr(CHUNK_BYTES)
        is_silent = not (stdout or stderr or self._has_data())
        has_exited = self._channel.exit_status_ready()
        self._silences = self._silences + 1 if is_silent and has_exited else 0
        is_over = is_over or self._silences >= SILENCES
        return Received(stdout, stderr, ended=is_over and not self._has_data())

    def close(self) -> None:
        """Send end of file and let go of the channel."""
        self.finish_input()
        self._let_go(self._channel)

    def _patience_s(self, wait_s: float, *, sending: bool) -> float:
        if not sending:
            return wait_s
        return 0.0 if self._channel.send_ready() else min(wait_s, WINDOW_POLL_S)

    def _has_data(self) -> bool:
        return self._channel.recv_ready() or self._channel.recv_stderr_ready()

    def _is_over(self) -> bool:
        return bool(self._channel.eof_received) or self._channel.closed
