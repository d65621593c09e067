"""Refuse a host that can't be had, before anything else is said of it or done."""

from __future__ import annotations

from fleetctl.errors import LeaseHeld
from fleetctl.transaction.journal import State
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
                f"for {held.expires_in_s:.0f} s more unless renewed",
                next_step=f"`fleetctl resume {lease.run_id}` if that run is yours and ended; "
                f"else wait, talk to {lease.holder}, or `fleetctl unlock --id {lease.id}`",
            )


_UNFINISHED = frozenset({State.APPLYING.value, State.APPLIED.value, State.REVERTING.value})


def refuse_restoring(host: Reached, status: Status) -> None:
    """Refuse a host that is just being brought back: what is seen of it is neither arm's.

    Raises:
        LeaseHeld: it says whose change is undone, and how to see the end of it.
    """
    for left in status.transactions:
        if left.unit == host.host.unit and left.state in _UNFINISHED:
            raise LeaseHeld(
                f"{host.name} is being restored",
                why=f"the lease of run {left.run_id} by {left.holder} has ended",
                next_step=f"wait until `fleetctl status --host {host.name}` says that it is free",
            )


_UNDECIDED = {
    State.CONFLICT.value: "that is in conflict: somebody else changed its files",
    State.DAMAGED.value: "whose journal is damaged",
}


def refuse_undecided(host: Reached, status: Status) -> None:
    """Refuse a host that would give no lease before somebody decides what an earlier run left.

    Raises:
        LeaseHeld: it says whose change it is, and which command decides it.
    """
    for left in status.transactions:
        is_elsewhere = bool(left.run_id) and left.unit != host.host.unit
        if left.state not in _UNDECIDED or is_elsewhere:
            continue
        whose = f"of run {left.run_id} by {left.holder}" if left.run_id else "of an unknown run"
        named = f" {left.run_id}" if left.run_id else ""
        raise LeaseHeld(
            f"{host.name} holds a change {whose} {_UNDECIDED[left.state]}",
            why=left.problem or f"to be decided: {', '.join(left.conflicts) or left.id}",
            next_step=f"`fleetctl rollback{named} --list --host {host.name}`, then without --list,"
            " or with --force to overwrite what others changed",
        )
