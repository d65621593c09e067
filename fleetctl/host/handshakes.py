"""How many logins may be under way at once, per sshd, so that its MaxStartups never bites."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator

import tenacity

from fleetctl.clock import Clock
from fleetctl.errors import HostUnreachable

# sshd begins to drop logins at random from the tenth connection that has not logged in yet
# (MaxStartups 10:30:100), and notices late that one has: with 8 at once drops were seen.
WIDTH = 6


class HandshakeDropped(HostUnreachable):
    """The server hung up before the login began, as sshd does beyond MaxStartups; worth a retry."""


class HandshakeGate:
    """Lets at most `width` handshakes per sshd through; one gate serves a whole process."""

    def __init__(self, width: int = WIDTH) -> None:
        self._lock = threading.Lock()
        self._slots = defaultdict[tuple[str, int], threading.Semaphore](
            lambda: threading.Semaphore(width)
        )

    @contextlib.contextmanager
    def passing(self, *places: tuple[str, int]) -> Iterator[None]:
        """Hold a place at each sshd named by (host, port) while the body runs."""
        with contextlib.ExitStack() as held:
            # One order for everybody, so that two callers never wait for each other.
            for place in sorted(set(places)):
                with self._lock:
                    slots = self._slots[place]
                held.enter_context(slots)
            yield


def retrying(deadline_s: float, clock: Clock) -> tenacity.Retrying:
    """Return a caller that tries dropped handshakes again until `deadline_s`, with jitter.

    Only what happens before the login is tried again: no key is offered twice.
    """
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(HandshakeDropped),
        stop=tenacity.stop_after_delay(deadline_s),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=3.0),
        sleep=clock.sleep,
        reraise=True,
    )
