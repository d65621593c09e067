"""Hosts over paramiko, held by fabric: the back end that needs no `ssh` program."""

from __future__ import annotations

import contextlib

import paramiko

from fleetctl.clock import Clock
from fleetctl.errors import ChannelRefused, ConnectionLost, HostUnreachable
from fleetctl.host.conversation import Limits
from fleetctl.host.endpoint import Endpoint
from fleetctl.host.handshakes import HandshakeGate, retrying
from fleetctl.host.route import refuse_beyond_paramiko, route_to
from fleetctl.host.shell import ShellTransport
from fleetctl.host.ssh_config import Resolved
from fleetctl.host.ssh_forward import forwarded
from fleetctl.host.ssh_login import Login, log_in
from fleetctl.host.ssh_pipe import ChannelPipe
from fleetctl.host.ssh_sessions import Sessions
from fleetctl.host.ssh_socket import ByteStream, dial
from fleetctl.host.ssh_watch import Watch
from fleetctl.host.supervisor import Call, login_command


class ParamikoConnection:
    """A `Connection` over a chain of paramiko logins, the last of which is the host."""

    def __init__(self, endpoint: Endpoint, logins: tuple[Login, ...], clock: Clock) -> None:
        self._name = endpoint.name
        self._logins = logins
        self._transport = logins[-1].transport
        self._sessions = Sessions(self._transport, clock)
        self._is_closed = False
        self._watch = Watch(logins[-1], host_name=endpoint.name)
        self._watch.start()

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        return self._name

    @property
    def loss(self) -> str:
        """Why the connection does not stand any more, as far as this side knows."""
        if self._is_closed:
            return "fleetctl closed it"
        return self._watch.loss or "the stream ended"

    def open(self, call: Call) -> ChannelPipe:
        """Start a supervised call in a session of its own."""
        command = login_command(call)
        try:
            channel = self._sessions.open()
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._refused(call, error) from error
        try:
            channel.exec_command(command)
        except BaseException as error:
            channel.close()
            self._sessions.let_go(channel)
            if isinstance(error, paramiko.SSHException | EOFError | OSError):
                raise self._refused(call, error) from error
            raise
        return ChannelPipe(channel, self._sessions.let_go)

    def forward(
        self, port: int, *, address: str
    ) -> contextlib.AbstractContextManager[tuple[str, int]]:
        """Listen locally for a port on the host."""
        return forwarded(self._transport, (address, port), host_name=self._name)

    def check_alive(self, *, deadline_s: float) -> None:
        """Raise ConnectionLost unless the peer answers in time."""
        if not self.is_open() or not self._watch.ask(deadline_s):
            why = self.loss if not self.is_open() else f"it gave no answer within {deadline_s:g} s"
            raise ConnectionLost(
                f"{self._name} does not answer",
                why=why,
                next_step=f"check that {self._name} is up, then `fleetctl status`",
            )

    def is_open(self) -> bool:
        """Say whether the connection still stands, as far as this side knows."""
        return not self._is_closed and self._transport.is_active()

    def close(self) -> None:
        """Close the logins, the host's first."""
        self._is_closed = True
        self._watch.stop()
        self._sessions.close()
        for login in reversed(self._logins):
            login.close()

    def _refused(self, call: Call, error: Exception) -> ChannelRefused | ConnectionLost:
        if self.is_open():
            return ChannelRefused(
                f"{self._name} opened no session for `{call.argv[0]}`",
                why=str(error) or type(error).__name__,
                next_step="raise MaxSessions in the host's sshd_config, or run less at once",
            )
        return ConnectionLost(
            f"the connection to {self._name} is gone",
            why=self.loss,
            next_step=f"check that {self._name} is up, then `fleetctl status`",
        )


def connect_ssh(endpoint: Endpoint, *, gate: HandshakeGate, clock: Clock) -> ShellTransport:
    """Log in to a host, over its jump hosts if it has any.

    Raises:
        SshConfigRefused, HostUnreachable, HostKeyRejected, LoginRefused.
    """
    logins: list[Login] = []
    try:
        for host in refuse_beyond_paramiko(route_to(endpoint)):
            logins.append(_hop(host, endpoint, logins[-1:], gate=gate, clock=clock))
        connection = ParamikoConnection(endpoint, tuple(logins), clock)
    except BaseException:
        for login in reversed(logins):
            login.close()
        raise
    limits = Limits(shell_deadline_s=endpoint.shell_deadline_s)
    return ShellTransport(connection, clock=clock, limits=limits)


def _hop(
    host: Resolved,
    endpoint: Endpoint,
    before: list[Login],
    *,
    gate: HandshakeGate,
    clock: Clock,
) -> Login:
    def attempt() -> Login:
        stream = _stream(host, endpoint, before)
        return log_in(host, endpoint, stream)

    with gate.passing((host.host_name, host.port)):
        return retrying(endpoint.connect_deadline_s, clock)(attempt)


def _stream(host: Resolved, endpoint: Endpoint, before: list[Login]) -> ByteStream:
    if not before:
        return dial(host, name=endpoint.name, deadline_s=endpoint.connect_deadline_s)
    try:
        return before[-1].transport.open_channel(
            "direct-tcpip",
            (host.host_name, host.port),
            ("127.0.0.1", 0),
            timeout=endpoint.connect_deadline_s,
        )
    except (paramiko.SSHException, EOFError, OSError) as error:
        peer = before[-1].connection.host
        raise HostUnreachable(
            f"cannot reach {host.alias} through {peer}",
            why=f"{peer} could not connect to {host.host_name} port {host.port}: {error}",
            next_step=f"on {peer}: `nc -vz {host.host_name} {host.port}`; "
            "its sshd must allow AllowTcpForwarding",
        ) from error
