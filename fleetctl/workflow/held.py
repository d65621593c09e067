"""Refuse a host on which somebody else works, before anything else is said of it."""

from __future__ import annotations

from fleetctl.errors import LeaseHeld
from fleetctl.transaction.snapshot import Status
from fleetctl.workflow.edges import Reached


def refuse_held(host: Reached, status: Status) -> None:
    """Refuse a host whose unit is under somebody's living lease.

    Raises:
        LeaseHeld: it says who holds it, for what and how long, and what can be done.
    """
    for held in status.leases:
        lease = held.lease
        if lease.unit == host.host.unit and held.expires_in_s > 0:
            raise LeaseHeld(
                f"{host.name} is held by {lease.holder}",
                why=f"run {lease.run_id} ({lease.purpose}) holds {lease.unit} "
                f"for {held.expires_in_s:.0f} s more",
                next_step=f"`fleetctl resume {lease.run_id}` if that run is yours and ended; "
                f"else wait, talk to {lease.holder}, or `fleetctl unlock --id {lease.id}`",
            )
