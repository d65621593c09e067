"""Does sshd answer? Asked without a login."""

from __future__ import annotations

import socket
from collections.abc import Callable

from fleetctl.clock import Clock

POLL_S = 0.01
HOPE_PERIOD_S = 0.5


def answers(address: str, port: int, *, timeout_s: float) -> bool:
    """Tell whether something at this address introduces itself as an SSH server."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_for_answer(
    address: str, port: int, clock: Clock, *, is_hopeless: Callable[[], bool], deadline_s: float
) -> bool:
    """Knock until sshd answers; False when it is hopeless or `deadline_s` passed."""
    end_s = clock.monotonic_s() + deadline_s
    ask_again_s = clock.monotonic_s() + HOPE_PERIOD_S
    while not answers(address, port, timeout_s=1.0):
        now_s = clock.monotonic_s()
        if now_s > end_s or (now_s > ask_again_s and is_hopeless()):
            return False
        if now_s > ask_again_s:
            ask_again_s = now_s + HOPE_PERIOD_S
        clock.sleep(POLL_S)
    return True
