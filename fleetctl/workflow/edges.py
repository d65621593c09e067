"""Everything a workflow touches of the outside world, built once by the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fleetctl.host.agent_client import Agent
from fleetctl.host.lasting import LastingTransport
from fleetctl.host.transport import Transport
from fleetctl.serving.trial import Driver, run_trial
from fleetctl.spec.inventory import Host
from fleetctl.workflow.stopping import Stop, StoppableClock


class Talk(Protocol):
    """Where a workflow says what it is doing; never data."""

    def say(self, line: str) -> None:
        """Say a line that stays."""
        ...

    def progress(self, topic: str, line: str) -> None:
        """Say how a long wait goes on; the next word on the topic may replace it."""
        ...


@dataclass(frozen=True)
class Edges:
    """The outside world of one invocation.

    Attributes:
        connect: opens a connection to a host, by name.
        agent: speaks to the host's agent over a connection.
        holder: `user@machine`, as leases name us.
        runs: folder of the run folders.
        salt: returns a fresh unpredictable word.
        drive: puts the load of a trial on a service.
    """

    connect: Callable[[str, Host], Transport]
    agent: Callable[[Transport, Host], Agent]
    clock: StoppableClock
    stop: Stop
    talk: Talk
    holder: str
    runs: Path
    salt: Callable[[], str]
    drive: Driver = run_trial


@dataclass(frozen=True)
class Reached:
    """A host we are connected to; a connection that is lost is made anew for the next question."""

    name: str
    host: Host
    transport: LastingTransport
    agent: Agent
