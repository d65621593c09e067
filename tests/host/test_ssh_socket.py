"""The connection below SSH: small packets leave at once, and a dead peer is noticed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fleetctl.errors import HostUnreachable
from fleetctl.host.ssh_config import parse_destination, resolve
from fleetctl.host.ssh_socket import dial


def target(port: int):
    destination = parse_destination(f"127.0.0.1:{port}")
    return resolve(destination, config=Path("/dev/null"))


def test_small_packets_leave_at_once_and_a_silent_peer_is_given_up_in_less_than_15_s():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        dial(target(server.getsockname()[1]), name="here", deadline_s=5.0) as dialled,
    ):

        def option(name: int) -> int:
            return dialled.getsockopt(socket.IPPROTO_TCP, name)

        assert option(socket.TCP_NODELAY) != 0
        assert dialled.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
        assert option(socket.TCP_USER_TIMEOUT) < 15_000
        silent_s = option(socket.TCP_KEEPIDLE)
        silent_s += option(socket.TCP_KEEPCNT) * option(socket.TCP_KEEPINTVL)
        assert silent_s < 15


def test_a_port_where_nobody_listens_is_said_with_the_way_to_look():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(HostUnreachable, match="cannot reach here") as told:
        dial(target(port), name="here", deadline_s=5.0)

    assert f"nc -vz 127.0.0.1 {port}" in told.value.next_step
    assert told.value.why == f"no SSH at 127.0.0.1 port {port}: Connection refused"
