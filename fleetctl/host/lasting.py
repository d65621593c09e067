"""A transport that outlives its connection: what is asked next goes over a new login."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from fleetctl.errors import ConnectionLost
from fleetctl.host.transport import Completed, Transport


class LastingTransport:
    """Opens a new connection whenever the one before is known to be lost.

    A call under way is never repeated: it raises `ConnectionLost`, and what the host did is
    unknown. A listener of `forward` belongs to the connection it was opened on and ends with it.
    All other methods may also raise what logging in raises.
    """

    def __init__(self, dial: Callable[[], Transport]) -> None:
        """Open the first connection.

        Args:
            dial: opens a connection; it is called again for each that is lost.

        Raises:
            HostError: as `dial`.
        """
        self._dial = dial
        self._dialing = threading.Lock()
        # apart from the other, which is held for as long as a login takes: `close` waits for none
        self._swapping = threading.Lock()
        self._current: Transport = dial()
        self._host_name = self._current.host_name
        self._is_closed = False
        self._replaced = 0
        self._opened_before = 0

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        return self._host_name

    @property
    def channels_opened(self) -> int:
        """How many sessions were asked for so far, over all connections."""
        return self._opened_before + self._current.channels_opened

    @property
    def times_lost(self) -> int:
        """How many connections were lost so far, the present one included when it is."""
        with self._swapping:
            return self._replaced + (not self._is_closed and not self._current.is_open())

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float) -> Completed:
        """Run a program to its end; see `Transport.run`."""
        return self._standing().run(argv, stdin=stdin, deadline_s=deadline_s)

    def put(self, content: bytes, path: str, *, mode: int) -> None:
        """Write a file atomically; see `Transport.put`."""
        self._standing().put(content, path, mode=mode)

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        return self._standing().get(path)

    @contextlib.contextmanager
    def forward(self, port: int, *, address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
        """Open a local listener to a port on the host; see `Transport.forward`."""
        with self._standing().forward(port, address=address) as local:
            yield local

    def check_alive(self, *, deadline_s: float) -> None:
        """Ask the peer for an answer; raise ConnectionLost when it gives none in time."""
        self._standing().check_alive(deadline_s=deadline_s)

    def is_open(self) -> bool:
        """Say whether the present connection still stands, as far as this side knows."""
        return self._current.is_open()

    def close(self) -> None:
        """End remote processes of this transport and close the connection, for good."""
        with self._swapping:
            self._is_closed = True
        self._current.close()

    def _standing(self) -> Transport:
        """Return a connection that stands, as far as this side knows."""
        current = self._current
        if self._is_closed or current.is_open():
            return current
        with self._dialing:
            if self._current is current:
                self._replace(current)
            return self._current

    def _replace(self, lost: Transport) -> None:
        found = self._dial()
        with self._swapping:
            if not self._is_closed:
                self._opened_before += lost.channels_opened
                self._current = found
                self._replaced += 1
        if self._current is found:
            lost.close()
            return
        found.close()
        raise ConnectionLost(
            f"the connection to {self._host_name} is closed",
            why="fleetctl closed it",
            next_step="none, if you asked fleetctl to stop",
        )
