"""Sessions on one connection: no more than sshd allows, counting those it has not closed yet."""

from __future__ import annotations

import contextlib
import threading

import paramiko

from fleetctl.clock import Clock

OPEN_DEADLINE_S = 20.0
# MaxSessions is 10 by default.
ROOM = 10
LINGER_S = 2.0
LOOK_EVERY_S = 0.01


class Sessions:
    """Opens channels, and keeps the finished ones until the server has closed them.

    sshd counts a session until its process has ended, which is a moment after the last byte;
    opening the next one too early is refused. Nobody waits for that moment unless room is short.
    """

    def __init__(self, transport: paramiko.Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._lock = threading.Lock()
        self._in_use = 0
        self._finished: list[tuple[float, paramiko.Channel]] = []

    def open(self) -> paramiko.Channel:
        """Open a session; whoever gets it gives it back with `let_go`."""
        self._await_room()
        try:
            return self._transport.open_session(timeout=OPEN_DEADLINE_S)
        except BaseException:
            with self._lock:
                self._in_use -= 1
            raise

    def let_go(self, channel: paramiko.Channel) -> None:
        """Take a session back that has sent its end of file."""
        with self._lock:
            self._in_use -= 1
            self._finished.append((self._clock.monotonic_s() + LINGER_S, channel))
            self._forget_closed()

    def close(self) -> None:
        """Close what the server has not closed yet."""
        with self._lock:
            for _until_s, channel in self._finished:
                _close(channel)
            self._finished.clear()

    def _await_room(self) -> None:
        while True:
            with self._lock:
                self._forget_closed()
                if self._in_use + len(self._finished) < ROOM or not self._finished:
                    self._in_use += 1
                    return
            self._clock.sleep(LOOK_EVERY_S)

    def _forget_closed(self) -> None:
        now_s = self._clock.monotonic_s()
        for until_s, channel in self._finished:
            if now_s > until_s:
                _close(channel)
        self._finished = [pair for pair in self._finished if not pair[1].closed]


def _close(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.close()
