"""What a dead controller of a run left on a host: restored, but never under a living one."""

from __future__ import annotations

from fleetctl.errors import LeaseHeld
from fleetctl.store.run_folder import RunFolder
from fleetctl.transaction.snapshot import HeldLease
from fleetctl.workflow.edges import Edges, Reached


def lease_mark(folder: RunFolder) -> str:
    """Return the end of every lease id that a controller working in this very folder takes."""
    return f"-{folder.place}"


def settle_host(edges: Edges, folder: RunFolder, host: Reached) -> None:
    """Restore what this run left on a host, and end its leases, if it left anything.

    Whoever calls has claimed the folder, so that a lease taken from it is a dead controller's.
    Any other lease of the run is that of a copy of the folder, and lives until it has expired.

    Raises:
        LeaseHeld: the run goes on in another folder or on another machine; nothing was touched.
        HostError: the host can't be asked.
    """
    held = host.agent.status()
    for lease in _of(folder, held.leases):
        if lease.expires_in_s > 0 and not lease.lease.id.endswith(lease_mark(folder)):
            raise _goes_on_elsewhere(folder, host.name, lease)
    if any(transaction.run_id == folder.run_id for transaction in held.transactions):
        host.agent.restore(run_id=folder.run_id)
        edges.talk.say(f"{host.name}: restored what the run had left")
    mine = {lease.lease.id for lease in _of(folder, held.leases)}
    for lease in _of(folder, host.agent.status().leases):
        if lease.lease.id in mine:
            host.agent.unlock(lease.lease.id, by=edges.holder)


def _of(folder: RunFolder, leases: tuple[HeldLease, ...]) -> tuple[HeldLease, ...]:
    return tuple(lease for lease in leases if lease.lease.run_id == folder.run_id)


def _goes_on_elsewhere(folder: RunFolder, host: str, held: HeldLease) -> LeaseHeld:
    lease = held.lease
    return LeaseHeld(
        f"run {folder.run_id} still holds {lease.unit or 'no unit'} on {host}",
        why=f"{lease.holder} took the lease from another folder or machine than {folder.path}, "
        f"and it lasts {held.expires_in_s:.0f} s unless it is renewed",
        next_step="resume where the run goes on; if its controller is dead, wait until the lease "
        f"has ended (`fleetctl status --host {host}`), or `fleetctl unlock --id {lease.id}`",
    )
