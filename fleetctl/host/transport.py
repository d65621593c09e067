"""The seam to a host: run a program, move bytes, reach a port.

Every back end passes the contract in `tests/contracts/transport.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """How a remote program ended.

    Attributes:
        exit_code: 0 to 255; a signal is reported as 128 + its number.
        stdout: exactly the program's bytes.
        stderr: exactly the program's bytes.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes


class Transport(Protocol):
    """One open connection to one host.

    All methods raise children of `HostError` only, are safe to call from several threads,
    and never leave a remote process of theirs behind: a call that is given up (deadline,
    `close`, an interrupt) kills the remote process group first, and a call that was given up
    before its program was started never starts it. Should this side vanish, the host
    notices the end of the stream, or at the latest the deadline, and kills the group itself.
    """

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        ...

    @property
    def channels_opened(self) -> int:
        """How many sessions were asked for so far, for round-trip budgets in tests."""
        ...

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float) -> Completed:
        """Run a program to its end; quoting is the transport's work.

        The program leads a session of its own. When it ends, what it left in its process group
        ends too; what should stay starts a session (`setsid`). `stdin` is whole or not at all:
        a program never sees an end of file that comes from a broken connection.

        Args:
            argv: the program and its arguments, as they should arrive.
            stdin: all of its input.
            deadline_s: counted from the program's start; a slow login shell has its own time.

        Raises:
            RemoteTimeout: `deadline_s` passed; the remote process group was killed.
            ConnectionLost: the connection broke; what the host did is unknown.
            ChannelRefused: sshd would open no further session.
        """
        ...

    def put(self, content: bytes, path: str, *, mode: int) -> None:
        """Write a file atomically (temporary file beside it, fsync, rename)."""
        ...

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        ...

    def forward(
        self, port: int, *, address: str = "127.0.0.1"
    ) -> contextlib.AbstractContextManager[tuple[str, int]]:
        """Open a local listener to a port on the host; yields (address, port) to connect to."""
        ...

    def check_alive(self, *, deadline_s: float) -> None:
        """Ask the peer for an answer; raise ConnectionLost when it gives none in time."""
        ...

    def is_open(self) -> bool:
        """Say whether the connection still stands, as far as this side knows."""
        ...

    def close(self) -> None:
        """End remote processes of this transport and close the connection."""
        ...
