"""A heartbeat that needs an answer: paramiko's own keepalive is sent and never checked."""

from __future__ import annotations

import contextlib
import threading

import paramiko

from fleetctl.host.ssh_login import Login

TICK_S = 1.0
ASK_AT_TICK = 4
LOST_AT_TICK = 11


class Watch:
    """Asks a silent peer for a sign of life, and closes the connection to one that gives none.

    A peer is given up after `LOST_AT_TICK` s in which nothing came. Bytes of any kind count as
    life, so a slow transfer is never mistaken for death. Ticks are counted, not time: should this
    process be stopped for a while, the peer still has all its ticks to answer afterwards.
    """

    def __init__(self, login: Login, *, host_name: str) -> None:
        self._login = login
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
        answered = threading.Event()

        def question() -> None:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._login.transport.global_request("keepalive@openssh.com", wait=True)
                answered.set()

        # In a thread of its own: paramiko waits for the answer until the connection ends.
        threading.Thread(target=question, name="ask", daemon=True).start()
        return answered.wait(deadline_s) and self._login.transport.is_active()

    def stop(self) -> None:
        """End the watch."""
        self._stop.set()

    def _run(self) -> None:
        heard = silent_ticks = 0
        while not self._stop.wait(TICK_S) and self._login.transport.is_active():
            if self._login.stream.times_heard != heard:
                heard, silent_ticks = self._login.stream.times_heard, 0
                continue
            silent_ticks += 1
            if silent_ticks == ASK_AT_TICK:
                # In a thread of its own: a full socket would hold us, and we must go on counting.
                threading.Thread(target=self._ping, name="ping", daemon=True).start()
            if silent_ticks == LOST_AT_TICK:
                self._loss = f"the peer gave no sign of life for {LOST_AT_TICK * TICK_S:.0f} s"
                self._login.close()

    def _ping(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._login.transport.ping()
