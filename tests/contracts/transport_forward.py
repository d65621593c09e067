"""What every `Transport` promises about ports of the host's loopback; see `transport.py`."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import HostError
from fleetctl.host.transport import Transport
from tests.host.ports import silent_port

MIB = 1 << 20


@contextlib.contextmanager
def echo_server(*, size: int = 65536) -> Iterator[int]:
    """Echo each connection's bytes until it is half-closed; answer `flood` without end."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(size):
                connection.sendall(data)
                while data == b"flood":
                    connection.sendall(bytes(size))

    def accept() -> None:
        with contextlib.suppress(OSError), ThreadPoolExecutor(256) as pool:
            while True:
                pool.submit(serve, listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def send_all(connection: socket.socket, content: bytes) -> None:
    connection.sendall(content)
    connection.shutdown(socket.SHUT_WR)


class ForwardContract:
    """Ports of the host's loopback."""

    def test_bytes_pass_both_ways_until_each_side_has_ended(self, transport: Transport):
        content = os.urandom(3 * MIB)
        with (
            echo_server() as port,
            transport.forward(port) as place,
            socket.create_connection(place, timeout=30) as connection,
            ThreadPoolExecutor(1) as pool,
        ):
            sending = pool.submit(send_all, connection, content)
            received = read_all(connection)
            sending.result()

        assert received == content

    def test_forty_connections_at_once(self, transport: Transport):
        with echo_server() as port, transport.forward(port) as place:
            connections = [socket.create_connection(place, timeout=30) for _ in range(40)]
            for number, connection in enumerate(connections):
                connection.sendall(f"{number:04}".encode())
            replies = [connection.recv(4) for connection in connections]
            for connection in connections:
                connection.close()

        assert replies == [f"{number:04}".encode() for number in range(40)]

    def test_a_port_where_nobody_listens_fails_at_once(self, transport: Transport):
        with silent_port() as silent, transport.forward(silent.getsockname()[1]) as place:
            clock = SystemClock()
            start_s = clock.monotonic_s()
            reply = b"none"
            with (
                contextlib.suppress(ConnectionError),
                socket.create_connection(place, timeout=15) as connection,
            ):
                reply = connection.recv(1)

            assert reply in (b"", b"none")
            assert clock.monotonic_s() - start_s < 10

    def test_a_service_that_comes_up_later_is_reached(self, transport: Transport):
        with silent_port() as service, transport.forward(service.getsockname()[1]) as place:
            service.listen()
            with socket.create_connection(place, timeout=30) as connection:
                peer, _ = service.accept()
                peer.sendall(b"up")
                peer.close()

                assert connection.recv(2) == b"up"

    def test_a_slow_reader_holds_up_nobody_else(self, transport: Transport):
        with echo_server() as port, transport.forward(port) as place:
            slow = socket.create_connection(place, timeout=30)
            quick = socket.create_connection(place, timeout=30)
            slow.sendall(b"flood")
            for number in range(20):
                quick.sendall(f"{number:02}".encode())
                assert quick.recv(2) == f"{number:02}".encode()
            slow.close()
            quick.close()

    def test_a_host_that_answers_is_alive(self, transport: Transport):
        transport.check_alive(deadline_s=30)

    def test_errors_are_of_one_family_and_help(self, transport: Transport, host_dir: Path):
        with pytest.raises(HostError) as caught:
            transport.get(str(host_dir / "nothing"))

        assert caught.value.what
        assert caught.value.why
        assert caught.value.next_step
