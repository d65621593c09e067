"""A bad line between controller and host: it tears bytes into pieces, dawdles, and cuts."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import Self

from fleetctl.clock import SystemClock

PIECE_BYTES = 700
DAWDLES_S = 0.004


class BadLink:
    """Forwards a port, badly.

    Attributes:
        carried: bytes that went through so far, to the host and back.
    """

    def __init__(self, to_port: int, *, cut_after: tuple[int, int], seed: int) -> None:
        """Make a line that is cut after so many bytes to the host, or back."""
        self._to_port = to_port
        self._cut_after = cut_after
        self._seed = seed
        self.carried = [0, 0]
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._cut()
        for thread in self._threads:
            thread.join(5)
        for each in (self._listening, *self._sockets):
            each.close()

    def _cut(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to_port))
                self._sockets += [near, far]
                for way, pair in enumerate(((near, far), (far, near))):
                    thread = threading.Thread(target=self._carry, args=(way, *pair), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, way: int, source: socket.socket, target: socket.socket) -> None:
        dice, clock = random.Random(self._seed + way), SystemClock()
        with contextlib.suppress(OSError):
            while piece := source.recv(dice.randint(1, PIECE_BYTES)):
                left = self._cut_after[way] - self.carried[way]
                target.sendall(piece[:left])
                self.carried[way] += min(left, len(piece))
                if left <= len(piece):
                    break
                if dice.random() < 0.05:
                    clock.sleep(dice.random() * DAWDLES_S)
        self._cut()
