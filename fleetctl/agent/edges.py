"""What the agent's verbs touch the world through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetctl.agent.claims import Claims
from fleetctl.agent.deadman import DeadMan, Program
from fleetctl.agent.host_clock import HostClock
from fleetctl.agent.leases import Leases
from fleetctl.agent.state import StateDir
from fleetctl.agent.systemd import Systemctl


@dataclass(frozen=True)
class Edges:
    """The agent itself, its state, clock, systemd, leases, their claims and what enforces them."""

    program: Program
    state: StateDir
    clock: HostClock
    systemctl: Systemctl
    leases: Leases
    claims: Claims
    deadman: DeadMan


def open_edges(state_path: str, program: Program) -> Edges:
    """Return the edges of this host."""
    state, clock, systemctl = StateDir(Path(state_path)), HostClock(), Systemctl()
    return Edges(
        program=program,
        state=state,
        clock=clock,
        systemctl=systemctl,
        leases=Leases(state, clock),
        claims=Claims(state, clock),
        deadman=DeadMan(state, program, systemctl),
    )
