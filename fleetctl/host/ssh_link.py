"""One forwarded connection: bytes between a local socket and a channel, nothing ever blocking."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque

import paramiko

CHUNK_BYTES = 1 << 18
# Beyond this much for a slow local reader, the channel's window is left to close.
BACKLOG_BYTES = 1 << 20


class Link:
    """A local connection and its channel; it holds both until `close`.

    Attributes:
        local: the accepted socket, not blocking.
        channel: the channel to the host's port, not blocking.
        to_channel: bytes that the channel's window did not take yet.
    """

    def __init__(self, local: socket.socket, channel: paramiko.Channel) -> None:
        self.local = local
        self.channel = channel
        self.to_channel = memoryview(b"")
        self._to_local: deque[memoryview] = deque()
        self._to_local_bytes = 0
        self._is_local_done = False
        self._is_channel_done = False

    def carry(self) -> None:
        """Move what can be moved in both directions without waiting."""
        self._read_channel()
        self._write_local()
        self._write_channel()
        if not self.to_channel and not self._is_local_done:
            self._read_local()
            self._write_channel()

    def is_over(self) -> bool:
        """Say whether nothing will flow any more."""
        if self._to_local or not self._is_channel_done:
            return False
        return self._is_local_done or self.channel.closed

    def local_events(self) -> int:
        """Return what to look for on the local side."""
        reading = 0 if self.to_channel or self._is_local_done else selectors.EVENT_READ
        return reading | (selectors.EVENT_WRITE if self._to_local else 0)

    def channel_events(self) -> int:
        """Return what to look for on the channel's side."""
        is_reading = not self._is_channel_done and self._to_local_bytes < BACKLOG_BYTES
        return selectors.EVENT_READ if is_reading else 0

    def close(self) -> None:
        """Close both ends."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.channel.close()
        self.local.close()

    def _read_channel(self) -> None:
        while self._to_local_bytes < BACKLOG_BYTES and self.channel.recv_ready():
            data = self.channel.recv(CHUNK_BYTES)
            self._to_local.append(memoryview(data))
            self._to_local_bytes += len(data)
        is_ended = self.channel.eof_received or self.channel.closed
        if is_ended and not self.channel.recv_ready():
            self._is_channel_done = True

    def _write_local(self) -> None:
        while self._to_local:
            try:
                sent = self.local.send(self._to_local[0])
            except BlockingIOError:
                return
            self._to_local_bytes -= sent
            rest = self._to_local.popleft()[sent:]
            if rest:
                self._to_local.appendleft(rest)
        if self._is_channel_done:
            with contextlib.suppress(OSError):
                self.local.shutdown(socket.SHUT_WR)

    def _read_local(self) -> None:
        try:
            data = self.local.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._is_local_done = True
            self.channel.shutdown_write()
        self.to_channel = memoryview(data)

    def _write_channel(self) -> None:
        while self.to_channel and self.channel.send_ready():
            sent = self.channel.send(bytes(self.to_channel))
            if sent == 0:
                raise EOFError
            self.to_channel = self.to_channel[sent:]
