"""The machine that fleetctl runs on, as a host like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fleetctl.clock import Clock
from fleetctl.host.conversation import Limits
from fleetctl.host.process_pipe import ProcessPipe
from fleetctl.host.shell import ShellTransport
from fleetctl.host.supervisor import Call, local_argv


class LocalConnection:
    """A `Connection` that starts supervisors as children of this process."""

    def __init__(self, host_name: str) -> None:
        self._host_name = host_name
        self._is_open = True

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        return self._host_name

    def open(self, call: Call) -> ProcessPipe:
        """Start a supervised call."""
        return ProcessPipe(local_argv(call))

    @contextlib.contextmanager
    def forward(self, port: int, *, address: str) -> Iterator[tuple[str, int]]:
        """Yield the port itself: it is on this machine already."""
        yield address, port

    def check_alive(self, *, deadline_s: float) -> None:
        """Do nothing: this machine is alive, or nobody asks."""

    @property
    def loss(self) -> str:
        """Why the connection does not stand any more."""
        return "fleetctl closed it"

    def is_open(self) -> bool:
        """Say whether `close` was not called yet."""
        return self._is_open

    def close(self) -> None:
        """Forget the connection; there is nothing to tear down."""
        self._is_open = False


def connect_local(host_name: str, *, clock: Clock, limits: Limits | None = None) -> ShellTransport:
    """Return a transport to this machine."""
    return ShellTransport(LocalConnection(host_name), clock=clock, limits=limits or Limits())
