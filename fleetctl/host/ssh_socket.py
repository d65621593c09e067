"""The TCP connection under paramiko, made by us: no Nagle, no silent death, signs of life."""

from __future__ import annotations

import socket
from typing import Protocol

from fleetctl.errors import HostUnreachable
from fleetctl.host.ssh_config import Resolved

USER_TIMEOUT_MS = 10_000
KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 3
KEEPALIVE_PROBES = 3


class ByteStream(Protocol):
    """What paramiko needs of a socket: a real one, or a channel through another host."""

    def recv(self, size: int, /) -> bytes:
        """Read at most `size` bytes."""
        ...

    def send(self, data: bytes, /) -> int:
        """Write some of `data`."""
        ...

    def settimeout(self, timeout_s: float | None, /) -> None:
        """Bound reads and writes."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class HeardStream:
    """A byte stream that counts how often the peer was heard.

    Attributes:
        times_heard: grows with every read that returned.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.times_heard = 0
        # paramiko looks at this name to know whether its own close is complete
        self._closed = False

    def recv(self, size: int) -> bytes:
        """Read at most `size` bytes."""
        data = self._stream.recv(size)
        self.times_heard += 1
        return data

    def send(self, data: bytes) -> int:
        """Write some of `data`."""
        return self._stream.send(data)

    def settimeout(self, timeout_s: float | None) -> None:
        """Bound reads and writes."""
        self._stream.settimeout(timeout_s)

    def close(self) -> None:
        """Close it."""
        self._closed = True
        self._stream.close()


def dial(host: Resolved, *, name: str, deadline_s: float) -> socket.socket:
    """Open a TCP connection, trying each address of the host.

    Raises:
        HostUnreachable: the name has no address, or none of them answered.
    """
    try:
        addresses = socket.getaddrinfo(host.host_name, host.port, host.family, socket.SOCK_STREAM)
    except OSError as error:
        raise HostUnreachable(
            f"cannot find {name}",
            why=f"`{host.host_name}` has no address: {error.strerror or error}",
            next_step="correct `address` in the inventory, or HostName in ssh_config",
        ) from error
    failure: OSError = OSError("no address to try")
    for family, kind, protocol, _name, address in addresses:
        try:
            return _connected(socket.socket(family, kind, protocol), address, host, deadline_s)
        except OSError as error:
            failure = error
    raise HostUnreachable(
        f"cannot reach {name}",
        why=f"no SSH at {host.host_name} port {host.port}: {failure.strerror or failure}",
        next_step=f"check that the host is up: `nc -vz {host.host_name} {host.port}`",
    ) from failure


def _connected(
    sock: socket.socket, address: tuple[object, ...], host: Resolved, deadline_s: float
) -> socket.socket:
    try:
        # Nagle costs 40 ms a request here: requests are many small packets
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        if host.bind_address:
            sock.bind((host.bind_address, 0))
        sock.settimeout(deadline_s)
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock
