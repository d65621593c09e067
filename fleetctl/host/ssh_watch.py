"""A heartbeat that needs an answer: paramiko's own keepalive is sent and never checked."""

from __future__ import annotations

import threading

import paramiko

from fleetctl.clock import Clock
from fleetctl.host.ssh_login import Login

TICK_S = 1.0
ASK_AFTER_S = 4.0
LOST_AFTER_S = 10.0
# How finely `ask` looks whether the connection has ended meanwhile.
ANSWER_SLICE_S = 0.1


class Watch:
    """Asks a silent peer for a sign of life, and closes the connection to one that gives none.

    A peer is noticed within `LOST_AFTER_S` plus a tick, 11 s. Bytes of any kind count as life,
    so a slow transfer is never mistaken for death.
    """

    def __init__(self, login: Login, *, host_name: str, clock: Clock) -> None:
        self._login = login
        self._clock = clock
        self._stop = threading.Event()
        self._loss = ""
        self._thread = threading.Thread(target=self._run, name=f"watch {host_name}", daemon=True)

    @property
    def loss(self) -> str:
        """Why the connection was given up; empty while it was not."""
        return self._loss

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def ask(self, deadline_s: float) -> bool:
        """Say whether the peer answers in time."""
        stream = self._login.stream
        until_s = self._clock.monotonic_s() + deadline_s
        stream.ask()
        # In a thread of its own, because a full socket would hold us longer than the deadline.
        threading.Thread(target=self._ping, name="ping", daemon=True).start()
        while (left_s := until_s - self._clock.monotonic_s()) > 0:
            if stream.heard_since_asked.wait(min(left_s, ANSWER_SLICE_S)):
                return True
            if not self._login.transport.is_active():
                return False
        return False

    def stop(self) -> None:
        """End the watch."""
        self._stop.set()

    def _run(self) -> None:
        asked_at_s = 0.0
        while not self._stop.wait(TICK_S) and self._login.transport.is_active():
            silent_s = self._login.stream.silent_for_s()
            if silent_s > LOST_AFTER_S:
                self._loss = f"the peer gave no sign of life for {silent_s:.0f} s"
                self._login.close()
                return
            now_s = self._clock.monotonic_s()
            if silent_s > ASK_AFTER_S and now_s - asked_at_s > ASK_AFTER_S:
                asked_at_s = now_s
                threading.Thread(target=self._ping, name="ping", daemon=True).start()

    def _ping(self) -> None:
        try:
            self._login.transport.ping()
        except (OSError, EOFError, paramiko.SSHException):
            return
