"""A lost connection is made anew for the next question; what was under way stays lost."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetctl.errors import ConnectionLost, HostUnreachable
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.lasting import LastingTransport
from fleetctl.host.shell import ShellTransport
from tests.contracts.transport_forward import echo_server, read_all
from tests.host.processes import descendants, pid_in, signal_all, wait_until
from tests.host.sshd import Sshds

Open = Callable[[Endpoint, Backend], ShellTransport]


class Way:
    """A connection in memory."""

    host_name = "gpu-1"
    channels_opened = 1

    def __init__(self) -> None:
        self.opened = True

    def is_open(self) -> bool:
        return self.opened

    def close(self) -> None:
        self.opened = False


def test_a_call_under_way_is_lost_and_the_next_goes_over_a_new_login(
    sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
):
    sshd = sshds.start()
    lasting = LastingTransport(lambda: open_transport(sshd.endpoint(), ssh_backend))
    with ThreadPoolExecutor(1) as pool:
        script = f"echo $$ >{tmp_path}/pid; exec sleep 600"
        waiting = pool.submit(lasting.run, ["sh", "-c", script], deadline_s=600)
        pid_in(tmp_path / "pid")
        signal_all(descendants(sshd.process.pid), signal.SIGKILL)
        with pytest.raises(ConnectionLost):
            waiting.result(30)
    wait_until(lambda: lasting.times_lost == 1)

    assert lasting.run(["echo", "in"], deadline_s=30).stdout == b"in\n"
    assert lasting.times_lost == 1
    assert lasting.channels_opened == 2
    with (
        echo_server() as port,
        lasting.forward(port) as address,
        socket.create_connection(address) as connection,
    ):
        connection.sendall(b"through")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b"through"
    lasting.close()


def test_a_host_that_stays_away_is_unreachable_each_time_it_is_asked():
    ways = [Way()]

    def dial() -> Way:
        if not ways:
            raise HostUnreachable("cannot reach gpu-1", why="", next_step="")
        return ways.pop()

    lasting = LastingTransport(dial)
    lasting._current.close()

    for _ in range(2):
        with pytest.raises(HostUnreachable):
            lasting.check_alive(deadline_s=1)
    assert lasting.times_lost == 1


def test_what_is_closed_is_not_opened_again():
    lasting = LastingTransport(Way)
    lasting.close()

    assert lasting._standing() is lasting._current
    assert not lasting.is_open()
    assert lasting.times_lost == 0


def test_a_login_that_ends_after_the_close_is_closed_too():
    dialing, closed = threading.Event(), threading.Event()
    late = Way()

    def dial() -> Way:
        dialing.set()
        closed.wait(10)
        return late

    lasting = LastingTransport(Way)
    lasting._dial = dial
    lasting._current.close()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(lasting._standing)
        assert dialing.wait(10)
        lasting.close()
        closed.set()
        with pytest.raises(ConnectionLost, match="fleetctl closed it"):
            asking.result(10)

    assert not late.opened
