"""Hosts over the `ssh` program and its ControlMaster: FIDO keys, GSSAPI and odd configurations.

The master lives under a guard whose input we hold: when this process dies, however it dies, that
input ends and the guard ends the master. It never expires by itself, so there is no moment in
which a command finds it just gone.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import ChannelRefused, ConnectionLost, HostUnreachable, SshConfigRefused
from fleetctl.host.conversation import Limits
from fleetctl.host.endpoint import Endpoint
from fleetctl.host.handshakes import HandshakeGate, retrying
from fleetctl.host.openssh_config import config_text
from fleetctl.host.openssh_failures import failure
from fleetctl.host.process_pipe import ProcessPipe
from fleetctl.host.route import route_to
from fleetctl.host.shell import ShellTransport
from fleetctl.host.supervisor import Call, login_command

# A socket's path has 108 bytes at most, and `ssh` needs 17 more for a temporary name.
SOCKET_PATH_LIMIT = 90
CONTROL_DEADLINE_S = 20.0
FORWARD_ATTEMPTS = 8
LOOK_EVERY_S = 0.02
# Runs a program until it ends or until stdin does, removes its folder, and ends with its exit code.
_GUARD = """folder=$1
shift
exec 3<&0
"$@" 3<&- </dev/null &
program=$!
{ read -r end; kill "$program"; } <&3 >/dev/null 2>&1 &
guard=$!
exec 3<&- >/dev/null 2>&1
wait "$program"
code=$?
kill "$guard"
rm -rf -- "$folder"
exit "$code"
"""


class Master:
    """A running ControlMaster: the process, its socket, and the folder that holds both."""

    def __init__(self, process: ProcessPipe, folder: Path) -> None:
        self._process = process
        self._folder = folder

    @property
    def socket_path(self) -> Path:
        """Where clients connect."""
        return self._folder / "s"

    def is_running(self) -> bool:
        """Say whether the master lives."""
        return self._process.is_running()

    def last_words(self) -> str:
        """Return what the master printed since it was asked last."""
        return self._process.receive(0.0, sending=False).stderr.decode("utf-8", "replace")

    def client(self, *options: str) -> list[str]:
        """Return the words of an `ssh` that goes through the master or fails, never around it."""
        around = ["-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o", "LogLevel=QUIET"]
        return [
            "ssh",
            "-F",
            "none",
            "-S",
            str(self.socket_path),
            "-T",
            *around,
            *options,
            "--",
            "mux",
        ]

    def close(self) -> None:
        """End the master and remove its folder."""
        self._process.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class OpensshConnection:
    """A `Connection` whose sessions are `ssh` clients of one master."""

    def __init__(self, endpoint: Endpoint, master: Master) -> None:
        self._name = endpoint.name
        self._master = master
        self._is_closed = False

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        return self._name

    @property
    def loss(self) -> str:
        """Why the connection does not stand any more, as far as this side knows."""
        if self._is_closed:
            return "fleetctl closed it"
        return self._master.last_words().strip() or "the ssh master ended"

    def open(self, call: Call) -> ProcessPipe:
        """Start a supervised call in a session of its own."""
        if not self.is_open():
            raise self._lost()
        return ProcessPipe(
            [*self._master.client(), login_command(call)], environment=_environment()
        )

    @contextlib.contextmanager
    def forward(self, port: int, *, address: str) -> Iterator[tuple[str, int]]:
        """Listen locally for a port on the host; the master carries the connections."""
        local_port = self._listen(port, address)
        try:
            yield "127.0.0.1", local_port
        finally:
            self._control("cancel", _forwarding(local_port, address, port))

    def check_alive(self, *, deadline_s: float) -> None:
        """Raise ConnectionLost unless the login shell answers in time."""
        if not self.is_open():
            raise self._lost()
        try:
            done = subprocess.run(
                [*self._master.client(), "exec true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=deadline_s,
                env=_environment(),
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._lost(f"it gave no answer within {deadline_s:g} s") from error
        if done.returncode != 0 and not self.is_open():
            raise self._lost()

    def is_open(self) -> bool:
        """Say whether the master lives."""
        return not self._is_closed and self._master.is_running()

    def close(self) -> None:
        """End the master."""
        self._is_closed = True
        self._master.close()

    def _listen(self, port: int, address: str) -> int:
        for _attempt in range(FORWARD_ATTEMPTS):
            # OpenSSH takes no port 0 here; should somebody be quicker, the next one is tried.
            with socket.create_server(("127.0.0.1", 0)) as probe:
                local_port = int(probe.getsockname()[1])
            if self._control("forward", _forwarding(local_port, address, port)):
                return local_port
            if not self.is_open():
                raise self._lost()
        raise ChannelRefused(
            f"cannot listen for port {port} of {self._name}",
            why=f"the ssh master refused {FORWARD_ATTEMPTS} local ports in a row",
            next_step="look for a local firewall or for a full port range",
        )

    def _control(self, command: str, forwarding: str) -> bool:
        try:
            done = subprocess.run(
                self._master.client("-O", command, "-L", forwarding),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CONTROL_DEADLINE_S,
                env=_environment(),
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._lost("the ssh master does not answer") from error
        return done.returncode == 0

    def _lost(self, why: str = "") -> ConnectionLost:
        return ConnectionLost(
            f"the connection to {self._name} is gone",
            why=why or self.loss,
            next_step=f"check that {self._name} is up, then `fleetctl status`",
        )


def connect_openssh(endpoint: Endpoint, *, gate: HandshakeGate, clock: Clock) -> ShellTransport:
    """Log in to a host with the `ssh` program, over its jump hosts if it has any.

    Raises:
        SshConfigRefused, HostUnreachable, HostKeyRejected, LoginRefused.
    """
    if shutil.which("ssh") is None:
        raise SshConfigRefused(
            "cannot use OpenSSH",
            why="there is no `ssh` program on this machine",
            next_step="install openssh-client, or leave `transport` of the inventory away",
        )
    route = route_to(endpoint)
    with gate.passing(*((host.host_name, host.port) for host in route)):
        master = retrying(endpoint.connect_deadline_s, clock)(
            lambda: _start(endpoint, hops=len(route), clock=clock)
        )
    limits = Limits(shell_deadline_s=endpoint.shell_deadline_s)
    return ShellTransport(OpensshConnection(endpoint, master), clock=clock, limits=limits)


def master_argv(endpoint: Endpoint, folder: Path) -> list[str]:
    """Return the words that start a master for an endpoint."""
    argv = ["ssh", "-F", str(folder / "config"), "-M", "-S", str(folder / "s"), "-T"]
    if endpoint.user:
        argv += ["-l", endpoint.user]
    if endpoint.port:
        argv += ["-p", str(endpoint.port)]
    if endpoint.proxy_jump:
        argv += ["-J", ",".join(endpoint.proxy_jump)]
    elif endpoint.proxy_jump is not None:
        argv += ["-o", "ProxyJump=none", "-o", "ProxyCommand=none"]
    return [*argv, "-N", "--", endpoint.address]


def _start(endpoint: Endpoint, *, hops: int, clock: Clock) -> Master:
    folder = _folder()
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    (folder / "config").write_text(config_text(endpoint, home), encoding="utf-8")
    argv = ["/bin/sh", "-c", _GUARD, "sh", str(folder), *master_argv(endpoint, folder)]
    process = ProcessPipe(argv, environment=_environment())
    master = Master(process, folder)
    limit_s = (endpoint.connect_deadline_s + endpoint.auth_deadline_s) * hops
    try:
        _await_socket(master, process, endpoint, until_s=clock.monotonic_s() + limit_s, clock=clock)
    except BaseException:
        master.close()
        raise
    return master


def _await_socket(
    master: Master, process: ProcessPipe, endpoint: Endpoint, *, until_s: float, clock: Clock
) -> None:
    said = b""
    while not master.socket_path.exists():
        received = process.receive(LOOK_EVERY_S, sending=False)
        said += received.stderr
        if received.ended:
            raise failure(endpoint, said.decode("utf-8", "replace"))
        if clock.monotonic_s() > until_s:
            raise HostUnreachable(
                f"cannot reach {endpoint.name}",
                why="the login was not done within the connect and auth deadlines",
                next_step=f"`ssh -v {endpoint.address} true` shows where it waits",
            )


def _forwarding(local_port: int, address: str, port: int) -> str:
    place = f"[{address}]" if ":" in address else address
    return f"127.0.0.1:{local_port}:{place}:{port}"


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fleetctl-"))
    if len(str(folder / "s")) <= SOCKET_PATH_LIMIT:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="fleetctl-", dir="/tmp"))


def _environment() -> dict[str, str]:
    # The words of the C locale are the ones we know.
    return {**os.environ, "LC_ALL": "C"}
