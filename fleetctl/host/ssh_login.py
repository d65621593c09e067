"""One login with paramiko, held by fabric: strict host key, our keys, and errors that help.

fabric trusts every host key and reads its own files by default; here it gets an empty
configuration, our socket, our policy and our keys, and keeps what it is good at: one object
that opens and closes a client.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import cast

import fabric
import paramiko
from paramiko.auth_strategy import AuthFailure

from fleetctl.errors import (
    HostError,
    HostKeyRejected,
    LoginRefused,
    SshConfigRefused,
)
from fleetctl.host import known_hosts
from fleetctl.host.endpoint import Endpoint
from fleetctl.host.handshakes import HandshakeDropped
from fleetctl.host.known_hosts import HostKey, KnownHosts, Trust
from fleetctl.host.ssh_config import Resolved
from fleetctl.host.ssh_keys import Keys, KeyStrategy, gathered
from fleetctl.host.ssh_socket import ByteStream, HeardStream

CHANNEL_DEADLINE_S = 20.0
# paramiko logs a traceback for each failed handshake; what matters of it is in our errors.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class PingTransport(paramiko.Transport):
    """A paramiko transport that can ask its peer for a sign of life without waiting for it."""

    def ping(self) -> None:
        """Send a request that every server must answer, with yes or no."""
        message = paramiko.Message()
        message.add_byte(bytes([paramiko.common.MSG_GLOBAL_REQUEST]))
        message.add_string("keepalive@openssh.com")
        message.add_boolean(True)  # noqa: FBT003 - paramiko takes it by position
        self._send_user_message(message)  # type: ignore[attr-defined] # paramiko's own, not in the stubs


@dataclass(frozen=True)
class Login:
    """One authenticated connection.

    Attributes:
        connection: fabric's, open.
        transport: the paramiko transport in it.
        stream: the byte stream below, which knows when the peer was last heard.
    """

    connection: fabric.Connection
    transport: PingTransport
    stream: HeardStream

    def close(self) -> None:
        """Close the connection and the stream below it."""
        self.connection.client.close()
        self.stream.close()


class StrictHostKeys(paramiko.MissingHostKeyPolicy):
    """Accepts what known_hosts knows, and a first key only when told to learn it."""

    def __init__(self, host: Resolved, endpoint: Endpoint) -> None:
        self._host = host
        self._endpoint = endpoint
        self._known = _known_hosts(host, endpoint)
        self.was_asked = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The signature algorithms to ask the host for first."""
        kinds = self._known.kinds(*self._place())
        return tuple(name for kind in kinds for name in _SIGNATURES.get(kind, (kind,)))

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Judge the key that the host has shown; paramiko is given no keys of its own."""
        del client, hostname
        self.was_asked = True
        shown = HostKey(key.get_name(), key.asbytes())
        trust, entries = self._known.judge(*self._place(), shown)
        if trust is Trust.KNOWN:
            return
        if trust is Trust.UNKNOWN and self._endpoint.accept_new:
            name, port = self._place()
            file = _user_files(self._host, self._endpoint)[0]
            known_hosts.learn(file, name, port, shown, is_hashed=self._host.is_hashing_names)
            return
        where = entries[0].where if entries else ""
        raise rejected(self._host, self._endpoint, shown, trust, where=where)

    def _place(self) -> tuple[str, int]:
        if self._host.key_name:
            return self._host.key_name, known_hosts.DEFAULT_PORT
        return self._host.host_name, self._host.port


def log_in(host: Resolved, endpoint: Endpoint, byte_stream: ByteStream) -> Login:
    """Shake hands over an open byte stream, check the host key, and log in.

    Raises:
        HandshakeDropped: the server hung up before the login began.
        HostKeyRejected, LoginRefused, SshConfigRefused, HostUnreachable.
    """
    stream = HeardStream(byte_stream)
    policy = StrictHostKeys(host, endpoint)
    files = endpoint.identity_files or host.identity_files
    only = bool(endpoint.identity_files) or host.is_identities_only
    with gathered(files, host.agent, is_identities_only=only) as keys:
        connection = _connection(host, endpoint, stream, policy, keys)
        try:
            connection.open()
            _require_login(connection, host, endpoint, keys)
        except BaseException as error:
            connection.client.close()
            stream.close()
            if isinstance(error, AuthFailure):
                raise login_refused(host, endpoint, keys, _said(error)) from error
            if isinstance(error, paramiko.SSHException | EOFError | OSError):
                raise _failed(host, endpoint, error, had_key=policy.was_asked) from error
            raise
    return Login(connection, connection.transport, stream)


def _connection(
    host: Resolved, endpoint: Endpoint, stream: HeardStream, policy: StrictHostKeys, keys: Keys
) -> fabric.Connection:
    def transport(sock: HeardStream, disabled_algorithms: None = None) -> PingTransport:
        made = PingTransport(cast("socket", sock), disabled_algorithms=disabled_algorithms)
        options = made.get_security_options()
        wanted = [kind for kind in policy.kinds if kind in options.key_types]
        options.key_types = [*wanted, *(k for k in options.key_types if k not in wanted)]
        return made

    connection = fabric.Connection(
        host.host_name,
        user=host.user,
        port=host.port,
        # lazy: read no configuration file, neither fabric's nor ssh's
        config=fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig()),
        forward_agent=False,
        connect_kwargs={
            "sock": stream,
            "timeout": endpoint.connect_deadline_s,
            "banner_timeout": endpoint.connect_deadline_s,
            "auth_timeout": endpoint.auth_deadline_s,
            "channel_timeout": CHANNEL_DEADLINE_S,
            "transport_factory": transport,
            "auth_strategy": KeyStrategy(host.user, keys),
        },
    )
    connection.client.set_missing_host_key_policy(policy)
    return connection


def _require_login(
    connection: fabric.Connection, host: Resolved, endpoint: Endpoint, keys: Keys
) -> None:
    if not connection.transport.is_authenticated():
        raise login_refused(host, endpoint, keys, "the key was accepted, but more is asked for")


def _said(failure: AuthFailure) -> str:
    results = [str(item.result) for item in failure.result]
    return results[-1] if results else ""


def _user_files(host: Resolved, endpoint: Endpoint) -> tuple[Path, ...]:
    return endpoint.known_hosts_files or host.user_known_hosts or (Path("/dev/null"),)


def _known_hosts(host: Resolved, endpoint: Endpoint) -> KnownHosts:
    system_files = () if endpoint.known_hosts_files else host.system_known_hosts
    return known_hosts.load((*_user_files(host, endpoint), *system_files))


def rejected(
    host: Resolved, endpoint: Endpoint, shown: HostKey, trust: Trust, *, where: str
) -> HostError:
    """Return the error for a host key that is not trusted, with the exact line that would help."""
    name = known_hosts.known_name(
        host.key_name or host.host_name, 22 if host.key_name else host.port
    )
    file = _user_files(host, endpoint)[0]
    label = _label(host, endpoint)
    if trust is Trust.AUTHORITY_ONLY:
        return SshConfigRefused(
            f"cannot check the host key of {label}",
            why=f"{where} trusts it through a certificate authority, which paramiko can't check",
            next_step='use `transport = "openssh"` in the inventory, or add its plain key: '
            f"{name} {shown.text}",
        )
    if trust is Trust.CHANGED:
        return HostKeyRejected(
            f"the host key of {label} has changed",
            why=f"it shows {shown.kind} {shown.fingerprint}, and {where} says otherwise",
            next_step=f"if the host was reinstalled: `ssh-keygen -R '{name}' -f {file}`, then "
            "learn the new key; if not, somebody may be listening: stop",
        )
    if trust is Trust.REVOKED:
        return HostKeyRejected(
            f"the host key of {label} is revoked",
            why=f"{where} revokes {shown.kind} {shown.fingerprint}",
            next_step="give the host a new key; a revoked one is never accepted",
        )
    return HostKeyRejected(
        f"the host key of {label} is not known",
        why=f"no known_hosts file has {name}; it shows {shown.kind} {shown.fingerprint}",
        next_step="compare that fingerprint on the host, then: "
        f"echo '{name} {shown.text}' >> {file}",
    )


def login_refused(host: Resolved, endpoint: Endpoint, keys: Keys, said: str) -> LoginRefused:
    """Return the error for a login that no key opened, naming all that were and weren't tried."""
    tried = ", ".join(named.name for named in keys.usable) or "none"
    skipped = f"; not tried: {'; '.join(keys.unusable)}" if keys.unusable else ""
    hint = (
        'use `transport = "openssh"` in the inventory, which can use all of them'
        if keys.unusable
        else f"put a public key into ~{host.user}/.ssh/authorized_keys there, "
        "or name the right one with `identity`"
    )
    return LoginRefused(
        f"{host.user} may not log in to {_label(host, endpoint)}",
        why=f"keys tried: {tried}{skipped}; the server said: {said or 'no'}",
        next_step=hint,
    )


def _failed(host: Resolved, endpoint: Endpoint, error: Exception, *, had_key: bool) -> HostError:
    label = _label(host, endpoint)
    if not had_key:
        return HandshakeDropped(
            f"no SSH handshake with {label}",
            why=f"the server hung up or fell silent before it showed a key: {_text(error)}",
            next_step=f"check that an sshd listens at {host.host_name} port {host.port} and that "
            "its MaxStartups allows more logins at once",
        )
    return LoginRefused(
        f"the login to {label} broke off",
        why=f"the server ended it: {_text(error)}",
        next_step="look into the host's sshd log; too many keys offered may be the reason "
        "(MaxAuthTries), then name one with `identity`",
    )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _label(host: Resolved, endpoint: Endpoint) -> str:
    if host.alias == endpoint.address:
        return endpoint.name
    return f"{host.alias} (on the way to {endpoint.name})"
