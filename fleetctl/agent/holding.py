"""Taking leases, and ending them: whatever is open under a lease goes back before it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import secrets
from typing import Collection, Iterable, Sequence

from fleetctl.agent import systemd, transactions
from fleetctl.agent.deadman import RETRY_S, NotArmed
from fleetctl.agent.edges import Edges
from fleetctl.agent.leases import DEADMAN_TIMER, Armed, LeaseRecord
from fleetctl.agent.manner import Manner, OnConflict
from fleetctl.agent.revert import revert
from fleetctl.agent.systemd import SystemctlMissing
from fleetctl.agent.transactions import OPEN, Transaction
from fleetctl.errors import ApplyFailed, ExitCode, LeaseHeld
from fleetctl.transaction.failure import LeaseTaken, with_facts
from fleetctl.transaction.journal import State
from fleetctl.transaction.lease import Lease, LeaseRequest, grant
from fleetctl.transaction.outcome import Granted, Restored

NOTHING = Restored((), (), (), (), (), ())
ROLLBACK_LEASE_S = 60.0


def combine(parts: Iterable[Restored]) -> Restored:
    """Return several answers as one."""
    found = list(parts)
    joined = {
        field.name: tuple(item for part in found for item in getattr(part, field.name))
        for field in dataclasses.fields(Restored)
    }
    return Restored(**joined)


def acquire(edges: Edges, request: LeaseRequest) -> tuple[Granted, bool]:
    """Take a lease and arm its dead-man; the lock must be held.

    Returns:
        The lease, and whether this very call took it (it may have been held already).

    Raises:
        LeaseTaken: somebody else holds the unit, or left a conflict on it.
        ApplyFailed: no dead-man could be armed; nothing was changed.
    """
    settle_expired(edges)
    for record in edges.leases.all():
        if record.lease.id == request.id and not record.claimed:
            _claim_again(edges, record.lease)
            return Granted(record.lease, record.armed.kind), False
        if record.lease.unit in _names(edges, request.unit, record.lease.unit):
            raise taken(record)
    _refuse_undecided(edges, request)
    return _armed(edges, request), True


def _claim_again(edges: Edges, lease: Lease) -> None:
    """Leave the claim of a lease that has none: the agent was killed first, or was an older one."""
    if not edges.claims.has(lease.id):
        unit = systemd.identity(edges.systemctl, lease.unit)
        edges.claims.make(lease, unit)
        refuse_claimed(edges, unit)


def _names(edges: Edges, unit: str, other: str) -> set[str]:
    """Return every name of a unit, aliases included; looked up only where another one differs."""
    names = {unit}
    if unit and other and unit != other:
        with contextlib.suppress(SystemctlMissing):
            names.update(edges.systemctl.show(unit, ("Names",)).get("Names", "").split())
    return names


def _armed(edges: Edges, request: LeaseRequest) -> Granted:
    """Arm the dead-man, then record the lease: a dead-man without a lease just tidies up."""
    unit = systemd.identity(edges.systemctl, request.unit)
    refuse_claimed(edges, unit)
    try:
        armed = edges.deadman.arm(request.id, request.unit, request.length_s)
    except NotArmed as error:
        raise ApplyFailed(
            "nothing would restore this host if the controller died",
            why=str(error),
            next_step="nothing was changed; make systemd-run work here, or free some memory",
            exit_code=ExitCode.REFUSED,
        ) from error
    lease = grant(request, edges.clock.now_s())
    deadline_s = edges.clock.boottime_s() + request.length_s
    try:
        edges.leases.add(LeaseRecord(lease, edges.clock.boot_id(), deadline_s, armed))
        edges.claims.make(lease, unit)
        refuse_claimed(edges, unit)  # who claims it in this instant sees ours, or is seen
    except LeaseTaken:
        _give_up(edges, request.id, armed)
        raise
    except OSError as error:
        _give_up(edges, request.id, armed)
        raise ApplyFailed(
            "the host could not note who holds it",
            why=f"{error.strerror or error} ({edges.state.path})",
            next_step="nothing was changed; make room on the host and try again",
            exit_code=ExitCode.REFUSED,
        ) from error
    return Granted(lease, armed.kind)


def _give_up(edges: Edges, lease_id: str, armed: Armed) -> None:
    """Remove a lease that was taken just now, under which nothing was done."""
    edges.claims.drop(lease_id)
    edges.leases.remove(lease_id)
    edges.deadman.disarm(lease_id, armed)


def refuse_claimed(edges: Edges, unit: str, paths: Collection[str] = ()) -> None:
    """Refuse a unit, or files, that somebody works on with another state directory.

    Raises:
        LeaseTaken: with who it is.
    """
    for claim in edges.claims.others():
        shared = sorted({*claim.paths} & {*paths})
        if not shared and not (unit and claim.unit == unit):
            continue
        lease = claim.lease
        error = LeaseTaken(
            f"{shared[0] if shared else lease.unit} is held by {lease.holder}",
            why=f"run {lease.run_id} ({lease.purpose}) holds lease {lease.id} in another state "
            f"directory of this host, {claim.state}",
            next_step=f"wait for it, or talk to {lease.holder}; `fleetctl unlock --id {lease.id}` "
            "ends it for who logs in as the user of that directory",
        )
        raise with_facts(error, lease=lease)


def taken(record: LeaseRecord) -> LeaseHeld:
    """Return the error that names who holds a unit."""
    lease = record.lease
    what = f"{lease.unit or 'this host'} is held by {lease.holder}"
    error = LeaseTaken(
        what,
        why=f"run {lease.run_id} ({lease.purpose}) holds lease {lease.id}",
        next_step=f"wait for it, talk to {lease.holder}, or `fleetctl unlock --id {lease.id}`",
    )
    with_facts(error, lease=lease)
    return error


_UNDECIDED = {
    State.CONFLICT: "that is in conflict: somebody else changed its files",
    State.DAMAGED: "whose journal is damaged",
    State.REVERTING: "that could not be undone so far",
}


def _refuse_undecided(edges: Edges, request: LeaseRequest) -> None:
    """Refuse to build on a transaction that is in conflict, damaged or cannot be undone."""
    for found in transactions.all_newest_first(edges):
        lease = found.opened.lease if found.opened else None
        if found.state not in _UNDECIDED or (lease is not None and lease.unit != request.unit):
            continue
        look, whose = "`fleetctl rollback --list`", "of an unknown run"
        if lease is not None:
            look = f"`fleetctl rollback {lease.run_id} --list`"
            whose = f"of run {lease.run_id} by {lease.holder}"
        error = LeaseTaken(
            f"{request.unit or 'this host'} holds a change {whose} {_UNDECIDED[found.state]}",
            why=transactions.held(edges, found).problem
            or f"transaction {found.id} waits for a decision",
            next_step=f"{look}, then without --list, or with --force to overwrite what others"
            " changed",
        )
        raise with_facts(error, lease=lease) if lease is not None else error


def settle_expired(edges: Edges) -> None:
    """Do the dead-man's work where it is due: expired leases, and transactions without one."""
    for record in edges.leases.all():
        if edges.leases.claim(record.lease.id, only_if_expired=True):
            end_lease(edges, record.lease.id, Manner("the lease expired"))
    for lease_id in edges.leases.unreadable():
        end_lease(edges, lease_id, Manner("the lease record is unreadable"))
    held = {record.lease.id for record in edges.leases.all()}
    for found in transactions.all_newest_first(edges):
        if found.state in OPEN and found.lease_id not in held and not _rolls_back(held, found):
            revert(edges, found.id, Manner("its lease is gone"))
    _clear_strays(edges)


def _clear_strays(edges: Edges) -> None:
    """Remove what a power cut left before there was a lease: boot units, half-written files."""
    held = {record.lease.id for record in edges.leases.all()} | set(edges.leases.unreadable())
    edges.claims.drop_all_but(held)
    for lease_id in edges.deadman.armed_for_boot() - held:
        edges.deadman.disarm(lease_id, None)
    transactions.tidy(edges)
    transactions.remove_old_agents(edges)


def _rolls_back(held: set[str], found: Transaction) -> bool:
    return any(_is_rollback_of(found, lease_id) for lease_id in held)


def _is_rollback_of(found: Transaction, lease_id: str) -> bool:
    return lease_id.rpartition("-")[0] == f"rollback-{found.id}"


def end_lease(edges: Edges, lease_id: str, manner: Manner) -> Restored:
    """Restore what is open under a lease, then remove it and its dead-man.

    Where something could not be restored the lease stays, claimed, and its dead-man goes on.
    """
    edges.leases.claim(lease_id, only_if_expired=False)
    known = transactions.all_newest_first(edges)
    under = [t for t in known if belongs(t, lease_id) and t.state in OPEN]
    result = combine([restore_each(edges, under, manner), _of_another_version(known, lease_id)])
    if not result.problems:
        drop(edges, lease_id)
    return result


def _of_another_version(known: Iterable[Transaction], lease_id: str) -> Restored:
    """Return what only the version that wrote it can restore: the dead-man of its lease is one."""
    word = f'"{lease_id}"'.encode()
    problems = tuple(
        f"transaction {t.id}: {t.journal.why}; the lease's dead-man restores it"
        for t in known
        if t.journal.foreign and (belongs(t, lease_id) or word in t.journal.foreign)
    )
    return dataclasses.replace(NOTHING, problems=problems)


def belongs(found: Transaction, lease_id: str) -> bool:
    """Tell whether a transaction is under a lease: its own, or that of its rollback."""
    return found.lease_id == lease_id or _is_rollback_of(found, lease_id)


def drop(edges: Edges, lease_id: str) -> None:
    """Tidy up and remove a lease and its dead-man; nothing may be open under it."""
    record = edges.leases.get(lease_id)
    # Whoever dies in here is followed by the dead-man: it tidies up again, also without a lease.
    transactions.tidy(edges)
    edges.claims.drop(lease_id)
    edges.leases.remove(lease_id)
    edges.deadman.disarm(lease_id, record.armed if record else None)
    transactions.remove_old_agents(edges)


def restore_each(edges: Edges, found: Sequence[Transaction], manner: Manner) -> Restored:
    """Revert transactions, newest first; one that fails stops only those that it rests on."""
    parts, stuck = [], Stuck()
    for each in found:
        result = stuck.below(each) or revert(edges, each.id, manner)
        stuck.note(each, result)
        parts.append(result)
    return combine(parts)


class Stuck:
    """Files that a newer change still has: an older one would take them for somebody's edit."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}

    def note(self, found: Transaction, result: Restored) -> None:
        """Remember a change that could not be undone."""
        if result.problems:
            self._paths.update(dict.fromkeys(found.paths, found.id))

    def below(self, found: Transaction) -> Restored | None:
        """Return the problem of a change that waits for a newer one; None where it need not."""
        waits_for = sorted({self._paths[path] for path in found.paths & self._paths.keys()})
        if not waits_for:
            return None
        problem = f"transaction {found.id}: it comes after {waits_for[0]}, which is not back yet"
        return dataclasses.replace(NOTHING, problems=(problem,))


def guard_rollback(edges: Edges, found: Transaction) -> str:
    """Make sure that a restore which dies half-way is finished by somebody; return the lease.

    The lock is held, so a lease that an earlier restore of the same run left is nobody's at work.

    Raises:
        LeaseTaken: another run holds the unit.
    """
    if found.lease_id and edges.leases.get(found.lease_id) is not None:
        return found.lease_id
    held = edges.leases.all()
    for record in held:
        if _is_rollback_of(found, record.lease.id):
            return record.lease.id
    lease = found.opened.lease if found.opened else None
    request = LeaseRequest(
        id=f"rollback-{found.id}-{secrets.token_hex(4)}",
        run_id=lease.run_id if lease else found.id,
        holder="rollback",
        purpose="bring the host back",
        unit=lease.unit if lease else "",
        length_s=ROLLBACK_LEASE_S,
    )
    for record in held:
        is_ours = (record.lease.holder, record.lease.run_id) == (request.holder, request.run_id)
        if record.lease.unit == request.unit and not is_ours:
            raise taken(record)
    _armed(edges, request)
    return request.id


class Expiry(enum.Enum):
    """What the dead-man found."""

    RENEWED = "renewed"
    SETTLED = "settled"
    UNRESTORED = "unrestored"


def expire(edges: Edges, lease_id: str) -> Expiry:
    """Be the dead-man: restore if the lease has expired, else see to the remainder."""
    with edges.state.locked(edges.clock, wait_s=None):
        record = edges.leases.get(lease_id)
        if record is not None and not edges.leases.claim(lease_id, only_if_expired=True):
            _look_again(edges, record)
            return Expiry.RENEWED
        result = end_lease(edges, lease_id, Manner("the lease expired"))
    return Expiry.UNRESTORED if result.problems else Expiry.SETTLED


def _look_again(edges: Edges, record: LeaseRecord) -> None:
    """Arm the next timer for what remains of a renewed lease; a watcher just sleeps on."""
    if record.armed.kind != DEADMAN_TIMER:
        return
    remaining_s = edges.leases.remaining_s(record)
    timer = edges.deadman.start_timer(record.lease.id, remaining_s)
    edges.leases.set_timer(record.lease.id, timer)


def recover(edges: Edges) -> Restored:
    """Restore what a reboot interrupted, before the services start."""
    manner = Manner("the host was rebooted", OnConflict.REPORT, at_boot=True)
    with edges.state.locked(edges.clock, wait_s=None):
        dead = [r.lease.id for r in edges.leases.all() if edges.leases.remaining_s(r) <= 0]
        parts = [_recovered(edges, lease_id, manner) for lease_id in dead]
        parts += [_recovered(edges, lease_id, manner) for lease_id in edges.leases.unreadable()]
        held = {record.lease.id for record in edges.leases.all()}
        alone = [
            t
            for t in transactions.all_newest_first(edges)
            if t.state in OPEN and t.lease_id not in held
        ]
        parts.append(restore_each(edges, alone, manner))
        _clear_strays(edges)
    return combine(parts)


def _recovered(edges: Edges, lease_id: str, manner: Manner) -> Restored:
    result = end_lease(edges, lease_id, manner)
    if result.problems:
        edges.deadman.start_timer(lease_id, RETRY_S)
    return result
