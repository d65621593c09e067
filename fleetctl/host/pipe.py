"""What a back end must offer: an open connection, and byte pipes to commands on the other side.

`ShellTransport` makes a whole `Transport` of it, so each back end stays small
and behaves like the others.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Protocol

from fleetctl.host.supervisor import Call


@dataclass(frozen=True)
class Received:
    """What came out of a pipe.

    Attributes:
        stdout: next bytes, maybe none.
        stderr: next bytes, maybe none.
        ended: nothing will come any more.
    """

    stdout: bytes
    stderr: bytes
    ended: bool


class Pipe(Protocol):
    """Stdin, stdout and stderr of one command; used by one thread at a time."""

    def send(self, data: memoryview) -> int:
        """Send what fits without waiting; return how many bytes that was."""
        ...

    def finish_input(self) -> None:
        """Send end of file."""
        ...

    def receive(self, wait_s: float, *, sending: bool) -> Received:
        """Wait at most `wait_s` until something came, or could be sent."""
        ...

    def close(self) -> None:
        """Let go of the command and of everything held for it."""
        ...


class Connection(Protocol):
    """One open connection to one host; safe to use from several threads."""

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        ...

    def open(self, call: Call) -> Pipe:
        """Start a supervised call.

        Raises:
            ChannelRefused: no further session for now.
            ConnectionLost: the connection is gone.
        """
        ...

    def forward(
        self, port: int, *, address: str
    ) -> contextlib.AbstractContextManager[tuple[str, int]]:
        """Listen locally for a port on the host."""
        ...

    def check_alive(self, *, deadline_s: float) -> None:
        """Raise ConnectionLost unless the peer answers in time."""
        ...

    @property
    def loss(self) -> str:
        """Why the connection does not stand any more, as far as this side knows."""
        ...

    def is_open(self) -> bool:
        """Say whether the connection still stands, as far as this side knows."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
