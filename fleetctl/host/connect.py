"""The one place that turns an `Endpoint` into an open `Transport`."""

from __future__ import annotations

from typing import assert_never

from fleetctl.clock import Clock
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.local import connect_local
from fleetctl.host.shell import ShellTransport


def connect(
    endpoint: Endpoint, *, backend: Backend, gate: HandshakeGate, clock: Clock
) -> ShellTransport:
    """Open a connection to a host; the caller closes it.

    Args:
        endpoint: where the host is and how to get in.
        backend: what carries the connection.
        gate: shared by all connections of this process, so that no sshd is overrun.
        clock: for deadlines and waits.

    Raises:
        SshConfigRefused: the configuration asks for what this back end can't do.
        HostUnreachable, HostKeyRejected, LoginRefused: as their names say; nothing was run.
    """
    match backend:
        case Backend.LOCAL:
            return connect_local(endpoint.name, clock=clock)
        case Backend.PARAMIKO:
            # paramiko and fabric take longer to import than all the rest of the program
            from fleetctl.host.ssh import connect_ssh  # noqa: PLC0415 - see above

            return connect_ssh(endpoint, gate=gate, clock=clock)
        case Backend.OPENSSH:
            from fleetctl.host.openssh import connect_openssh  # noqa: PLC0415 - only when wanted

            return connect_openssh(endpoint, gate=gate, clock=clock)
        case _:
            assert_never(backend)
