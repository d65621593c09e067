"""Local listeners for ports on a host, all their connections pumped by one thread over paramiko."""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import paramiko

from fleetctl.errors import ChannelRefused
from fleetctl.host.ssh_link import Link

OPEN_DEADLINE_S = 20.0
TICK_S = 0.5
WINDOW_POLL_S = 0.01
OPENERS = 32
ADMINISTRATIVELY_PROHIBITED = 1

Place = tuple[str, int]


@contextlib.contextmanager
def forwarded(
    transport: paramiko.Transport, place: Place, *, host_name: str
) -> Iterator[tuple[str, int]]:
    """Listen on a free local port and carry each connection to `place` as seen from the host.

    Where the host refuses the connection, the local one is reset at once.

    Raises:
        ChannelRefused: sshd forbids forwarding.
    """
    _require_permission(transport, place, host_name)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        pump = _Pump(transport, place, listener)
        thread = threading.Thread(target=pump.run, name=f"forward {host_name}", daemon=True)
        thread.start()
        try:
            address, port = listener.getsockname()[:2]
            yield str(address), int(port)
        finally:
            pump.stop()
            thread.join()


def _require_permission(transport: paramiko.Transport, place: Place, host_name: str) -> None:
    try:
        transport.open_channel(
            "direct-tcpip", place, ("127.0.0.1", 0), timeout=OPEN_DEADLINE_S
        ).close()
    except paramiko.ChannelException as error:
        # Any other refusal only means that nobody listens there yet.
        if error.code == ADMINISTRATIVELY_PROHIBITED:
            raise ChannelRefused(
                f"{host_name} does not let us reach its port {place[1]}",
                why="sshd forbids forwarding to it",
                next_step="allow it in sshd_config: AllowTcpForwarding local, "
                f"PermitOpen {place[0]}:{place[1]}",
            ) from error
    except (paramiko.SSHException, EOFError, OSError):
        return


class _Pump:
    """One thread that carries all connections of one listener."""

    def __init__(
        self, transport: paramiko.Transport, place: Place, listener: socket.socket
    ) -> None:
        self._transport = transport
        self._place = place
        self._listener = listener
        self._links: set[Link] = set()
        self._opened: queue.SimpleQueue[Link] = queue.SimpleQueue()
        self._wake_read, self._wake_write = socket.socketpair()
        self._is_stopping = False

    def run(self) -> None:
        """Carry bytes until `stop`."""
        self._listener.settimeout(0.0)
        with (
            ThreadPoolExecutor(OPENERS, thread_name_prefix="open") as openers,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(self._listener, selectors.EVENT_READ, lambda: self._accept(openers))
            selector.register(self._wake_read, selectors.EVENT_READ, self._take_opened)
            self._selector = selector
            while not self._is_stopping:
                self._turn()
            for link in list(self._links):
                self._drop(link)
        self._drain_opened()
        self._wake_read.close()
        self._wake_write.close()

    def stop(self) -> None:
        """End all connections and the thread."""
        self._is_stopping = True
        self._wake()

    def _turn(self) -> None:
        is_blocked = any(link.to_channel for link in self._links)
        for key, _events in self._selector.select(WINDOW_POLL_S if is_blocked else TICK_S):
            key.data()
        if is_blocked or not self._transport.is_active():
            for link in list(self._links):
                self._serve(link)

    def _accept(self, openers: ThreadPoolExecutor) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                local, _peer = self._listener.accept()
                openers.submit(self._open, local)

    def _open(self, local: socket.socket) -> None:
        try:
            local.settimeout(0.0)
            local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = self._transport.open_channel(
                "direct-tcpip", self._place, local.getpeername()[:2], timeout=OPEN_DEADLINE_S
            )
        except (paramiko.SSHException, EOFError, OSError):
            reset(local)
            return
        channel.settimeout(0.0)
        self._opened.put(Link(local, channel))
        self._wake()

    def _take_opened(self) -> None:
        self._wake_read.recv(4096)
        while not self._opened.empty():
            link = self._opened.get()
            self._links.add(link)
            self._serve(link)

    def _serve(self, link: Link) -> None:
        try:
            link.carry()
        except (OSError, EOFError, paramiko.SSHException):
            self._drop(link)
            return
        if link.is_over():
            self._drop(link)
        else:
            self._watch(link.local, link.local_events(), link)
            self._watch(link.channel, link.channel_events(), link)

    def _watch(self, end: socket.socket | paramiko.Channel, events: int, link: Link) -> None:
        known = self._selector.get_map().get(end)
        if known is None and events:
            self._selector.register(end, events, lambda: self._serve(link))
        elif known is not None and not events:
            self._selector.unregister(end)
        elif known is not None and known.events != events:
            self._selector.modify(end, events, known.data)

    def _drop(self, link: Link) -> None:
        self._links.discard(link)
        for end in (link.local, link.channel):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
        link.close()

    def _drain_opened(self) -> None:
        while not self._opened.empty():
            self._opened.get().close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b"!")


def reset(local: socket.socket) -> None:
    """Close a connection so that its peer sees it was refused, not ended."""
    with contextlib.suppress(OSError):
        local.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    local.close()
