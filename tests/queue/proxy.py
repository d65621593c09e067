"""A network between one machine and the database, which can be cut without a word to either end."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Self


class Proxy:
    """Forwards a port; while it is cut, bytes wait and new connections get no answer."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = [self._listening]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        """Let bytes through again; what was under way when it was cut is gone for good."""
        for each in list(self._sockets):
            if each is not self._listening:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self._open.wait()
            try:
                far = socket.create_connection(("127.0.0.1", self._to_port), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._sockets += [near, far]
            thread = threading.Thread(target=self._pump, args=(near, far), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as selector:
            for each in other:
                selector.register(each, selectors.EVENT_READ)
            with contextlib.suppress(OSError, ValueError):
                while self._forward(selector, other):
                    pass
        for each in other:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _forward(
        self, selector: selectors.BaseSelector, other: dict[object, socket.socket]
    ) -> bool:
        """Let through what has come; False when one end has closed."""
        for key, _ in selector.select(0.2):
            data = key.fileobj.recv(65536)
            self._open.wait()
            other[key.fileobj].sendall(data)
            if not data:
                return False
        return True
