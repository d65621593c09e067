"""Ports of the loopback for one test alone."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def silent_port() -> Iterator[socket.socket]:
    """A port that refuses connections, held so that no other program comes to listen on it.

    Who sets SO_REUSEADDR, as servers do, can listen on it all the same.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held
