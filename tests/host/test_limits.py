"""What breaks other tools: sshd's limits, peers that freeze or die, and the garbage collector."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import ChannelRefused, ConnectionLost, HostError
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.shell import ShellTransport
from fleetctl.host.ssh import ParamikoConnection
from fleetctl.host.supervisor import Call
from fleetctl.host.transport import Completed
from fleetctl.lab import Kind
from tests.conftest import RunningLab
from tests.contracts.transport_forward import echo_server
from tests.host.processes import descendants, is_running, pid_in, signal_all, wait_until
from tests.host.sshd import Sshd, Sshds

pytestmark = pytest.mark.slow

Open = Callable[[Endpoint, Backend], ShellTransport]


@pytest.fixture
def cuttable(permitted_kinds: set[Kind], request: pytest.FixtureRequest) -> RunningLab | None:
    """Lab hosts that can be cut from the network; None where this machine permits none."""
    if Kind.NAMESPACES not in permitted_kinds:
        return None
    lab: RunningLab = request.getfixturevalue("lab_hosts")
    return lab


def endpoint_of(running: RunningLab, name: str) -> Endpoint:
    host, paths = running.lab.host(name), running.lab.paths
    return Endpoint(
        name=name,
        address=host.address,
        user="root",
        port=host.port,
        identity_files=(paths.identity,),
        known_hosts_files=(paths.known_hosts,),
        ssh_config=Path("/dev/null"),
    )


def noticed(waiting: Future[Completed]) -> tuple[float, str]:
    """Return after how many seconds a call says that its connection is lost, and its words."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    with pytest.raises(ConnectionLost) as caught:
        waiting.result(60)
    return clock.monotonic_s() - began_s, str(caught.value)


class TestSessions:
    """MaxSessions: so many sessions per connection."""

    def test_more_calls_than_sessions_wait_for_their_turn(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        transport = open_transport(sshds.start("MaxSessions 1").endpoint(), ssh_backend)

        with ThreadPoolExecutor(4) as pool:
            results = list(
                pool.map(
                    lambda n: transport.run(["sh", "-c", f"sleep 0.3; echo {n}"], deadline_s=60),
                    range(4),
                )
            )

        assert [int(done.stdout) for done in results] == list(range(4))

    def test_the_default_limit_is_never_hit(
        self, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend
    ):
        transport = open_transport(shared_sshd.endpoint(), ssh_backend)
        before = shared_sshd.log.count("no more sessions")

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(lambda _: transport.run(["sleep", "0.2"], deadline_s=60), range(24)))

        assert shared_sshd.log.count("no more sessions") == before
        assert transport.channels_opened == 24

    def test_a_server_without_sessions_is_an_error_and_not_a_hang(
        self, sshds: Sshds, open_transport: Open
    ):
        sshd = sshds.start("MaxSessions 0")
        transport = open_transport(sshd.endpoint(), Backend.PARAMIKO)

        with pytest.raises(ChannelRefused, match="gpu-1") as caught:
            transport.run(["true"], deadline_s=60)

        assert "MaxSessions" in caught.value.next_step

    def test_a_forbidden_forward_is_said_at_once(self, sshds: Sshds, open_transport: Open):
        sshd = sshds.start("AllowTcpForwarding no")
        transport = open_transport(sshd.endpoint(), Backend.PARAMIKO)

        with (
            pytest.raises(ChannelRefused, match="does not let us reach") as caught,
            transport.forward(30002),
        ):
            pass

        assert "PermitOpen 127.0.0.1:30002" in caught.value.next_step


class TestStartups:
    """MaxStartups: so many logins under way."""

    def test_sixty_logins_at_once_all_succeed(self, sshds: Sshds, ssh_backend: Backend):
        sshd = sshds.start()
        gate = HandshakeGate()

        def log_in(_number: int) -> bool:
            transport = connect(
                sshd.endpoint(connect_deadline_s=120),
                backend=ssh_backend,
                gate=gate,
                clock=SystemClock(),
            )
            transport.close()
            return True

        with ThreadPoolExecutor(60) as pool:
            assert all(pool.map(log_in, range(60)))

    def test_logins_dropped_because_of_others_are_tried_again(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        sshd = sshds.start("MaxStartups 1")
        with (
            socket.create_connection(("127.0.0.1", sshd.port)) as other,
            ThreadPoolExecutor(1) as pool,
        ):
            other.recv(4)
            logging_in = pool.submit(open_transport, sshd.endpoint(), ssh_backend)
            wait_until(lambda: "drop connection" in sshd.log or "throttling" in sshd.log)
            other.close()

            assert logging_in.result(60).run(["echo", "in"], deadline_s=30).stdout == b"in\n"


class TestDeath:
    """Peers that freeze, and connections that end."""

    def test_a_frozen_peer_and_a_cut_network_are_noticed_long_before_the_deadline(
        self, sshds: Sshds, open_transport: Open, cuttable: RunningLab | None
    ):
        def freeze(backend: Backend) -> tuple[float, str]:
            sshd = sshds.start()
            transport = open_transport(sshd.endpoint(), backend)
            pid_file = sshd.folder / "pid-of-program"
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(
                    transport.run,
                    ["sh", "-c", f"echo $$ >{pid_file}; exec sleep 600"],
                    deadline_s=600,
                )
                program = pid_in(pid_file)
                frozen = [pid for pid in descendants(sshd.process.pid) if pid != program]
                signal_all(frozen, signal.SIGSTOP)
                found = noticed(waiting)
            with pytest.raises(ConnectionLost):
                transport.run(["true"], deadline_s=600)
            transport.close()
            signal_all(frozen, signal.SIGCONT)
            wait_until(lambda: not is_running(program), deadline_s=20)
            return found

        def run_on_lab(backend: Backend) -> Future[Completed]:
            assert cuttable is not None
            transport = open_transport(endpoint_of(cuttable, "lab-2"), backend)
            transport.run(["true"], deadline_s=30)
            return waiters.submit(transport.run, ["sleep", "600"], deadline_s=600)

        backends = (Backend.PARAMIKO, Backend.OPENSSH)
        with ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(2) as waiters:
            results = [pool.submit(freeze, backend) for backend in backends]
            if cuttable is not None:
                waiting = [run_on_lab(backend) for backend in backends]
                cuttable.lab.cut("lab-2")
                results += [pool.submit(noticed, one) for one in waiting]
            try:
                found = [result.result() for result in results]
            finally:
                if cuttable is not None:
                    cuttable.lab.heal("lab-2")

        for noticed_after_s, message in found:
            assert noticed_after_s < 30  # 13 s, and what a busy machine adds
            assert "what the host did after that is unknown" in message

    def test_a_connection_that_breaks_is_lost_and_its_program_ends(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        sshd = sshds.start()
        transport = open_transport(sshd.endpoint(), ssh_backend)
        transport.run(["true"], deadline_s=30)  # so that sshd has all its processes
        servers = descendants(sshd.process.pid)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                transport.run,
                ["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 600"],
                deadline_s=600,
            )
            program = pid_in(tmp_path / "pid")
            signal_all(servers, signal.SIGKILL)

            with pytest.raises(ConnectionLost, match="what the host did after that is unknown"):
                waiting.result(30)

        wait_until(lambda: not is_running(program))
        with pytest.raises(ConnectionLost):
            transport.run(["true"], deadline_s=30)
        with pytest.raises(ConnectionLost):
            transport.check_alive(deadline_s=5)

    def test_asking_a_frozen_peer_takes_no_longer_than_the_deadline(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        sshd = sshds.start()
        transport = open_transport(sshd.endpoint(), ssh_backend)
        transport.run(["true"], deadline_s=30)  # so that sshd has all its processes
        frozen = descendants(sshd.process.pid)
        signal_all(frozen, signal.SIGSTOP)

        with pytest.raises(ConnectionLost, match=r"gpu-1"):
            transport.check_alive(deadline_s=0.5)

        signal_all(frozen, signal.SIGCONT)
        transport.check_alive(deadline_s=30)

    def test_a_killed_controller_ends_its_programs_and_its_connection(
        self, sshds: Sshds, ssh_backend: Backend, tmp_path: Path
    ):
        sshd = sshds.start()
        script = (
            "import pathlib, sys\n"
            "from pathlib import PosixPath\n"
            "from fleetctl.clock import SystemClock\n"
            "from fleetctl.host.connect import connect\n"
            "from fleetctl.host.endpoint import Backend, Endpoint\n"
            "from fleetctl.host.handshakes import HandshakeGate\n"
            f"t = connect({sshd.endpoint()!r}, backend=Backend({str(ssh_backend)!r}),"
            " gate=HandshakeGate(), clock=SystemClock())\n"
            f"t.run(['sh', '-c', 'echo $$ >{tmp_path}/pid; exec sleep 600'], deadline_s=600)\n"
        )
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen([sys.executable, "-c", script], env=environment) as controller:
            program = pid_in(tmp_path / "pid")
            children = descendants(controller.pid)
            controller.send_signal(signal.SIGKILL)

        wait_until(lambda: not is_running(program))
        wait_until(lambda: not any(map(is_running, children)))
        wait_until(lambda: not any(map(is_running, descendants(sshd.process.pid))))
        wait_until(lambda: list(tmp_path.glob("fleetctl-*")) == [])

    def test_forwarded_connections_end_with_the_connection(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        sshd = sshds.start()
        transport = open_transport(sshd.endpoint(), ssh_backend)
        with (
            echo_server() as port,
            transport.forward(port) as place,
            socket.create_connection(place, timeout=30) as connection,
        ):
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            signal_all(descendants(sshd.process.pid), signal.SIGKILL)

            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""


class TestGarbage:
    """The finalizer of paramiko's stdin file takes the channel's lock (paramiko issue 2685)."""

    def test_a_collection_under_the_channels_lock_does_not_wait_for_itself(
        self, shared_sshd: Sshd, open_transport: Open
    ):
        transport = open_transport(shared_sshd.endpoint(), Backend.PARAMIKO)
        connection = transport._connection
        assert isinstance(connection, ParamikoConnection)
        pipe = connection.open(Call(("sleep", "600"), b"", 600))
        channel = pipe._channel
        ring: list[object] = [pipe]
        ring.append(ring)  # garbage in a cycle, as the traceback of an exception makes it
        del pipe, ring

        def collect() -> None:
            with channel.lock:
                gc.collect()

        collector = threading.Thread(target=collect, daemon=True)
        collector.start()
        collector.join(20)

        assert not collector.is_alive()
        channel.close()

    def test_no_file_objects_are_made_and_every_channel_is_closed(
        self, shared_sshd: Sshd, open_transport: Open
    ):
        made: list[object] = []
        transport = open_transport(shared_sshd.endpoint(), Backend.PARAMIKO)
        for deadline_s in (30, 0.2):
            try:
                transport.run(["sleep", "0.4"], stdin=b"x", deadline_s=deadline_s)
            except HostError as error:
                made.append(error)
        transport.close()
        gc.collect()

        # type(), because isinstance() asks an object for __class__, which proxies answer with code
        alive = [(type(o), o) for o in gc.get_objects()]
        files = [o for kind, o in alive if issubclass(kind, paramiko.channel.ChannelFile)]
        channels = [o for kind, o in alive if issubclass(kind, paramiko.Channel)]
        assert made
        assert files == []
        assert all(channel.closed for channel in channels)
