"""Ends of transactions: keep, restore, release, unlock, settle, forget; and what is held now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

from fleetctl.agent import holding, transactions
from fleetctl.agent.deadman import UNITS, WANTS
from fleetctl.agent.edges import Edges
from fleetctl.agent.holding import NOTHING
from fleetctl.agent.journal_file import JournalFile
from fleetctl.agent.manner import Manner, OnConflict
from fleetctl.agent.revert import remove_reserves
from fleetctl.agent.transactions import OPEN, Transaction
from fleetctl.errors import ApplyFailed, ExitCode, InputError, LeaseHeld
from fleetctl.transaction.failure import FilesInConflict, NotBack, with_facts
from fleetctl.transaction.journal import Committed, State
from fleetctl.transaction.lease import Lease, check_length
from fleetctl.transaction.outcome import Forgotten, Kept, Restored
from fleetctl.transaction.snapshot import HeldLease, Status

LOCK_WAIT_S = 60.0


def commit(edges: Edges, lease_id: str, transaction: str) -> Kept:
    """Keep what was applied under a lease; see `Agent.commit`."""
    with edges.state.locked(edges.clock, wait_s=LOCK_WAIT_S):
        found = [t for t in transactions.all_newest_first(edges) if t.lease_id == lease_id]
        if transaction and transaction not in {t.id for t in found}:
            raise _too_late("the host has no such transaction under this lease")
        record = edges.leases.get(lease_id)
        fresh = [t for t in found if t.state is not State.COMMITTED]
        if record is None and (fresh or not found):
            raise _too_late("the lease is over and the host has restored itself")
        if record is not None and record.claimed:
            raise _too_late("the lease expired first and the host restores itself")
        for each in fresh:
            if each.state not in {State.APPLIED, State.REVERTED}:
                raise _too_late(f"transaction {each.id} is {each.state.value}")
        kept = [t for t in found if t.state is not State.REVERTED]
        for each in kept:
            _keep(edges, each)
        if record is not None:
            holding.drop(edges, lease_id)
    return Kept(tuple(t.id for t in kept), already=record is None)


def _too_late(why: str) -> ApplyFailed:
    return ApplyFailed(
        "the change was not kept",
        why=why,
        next_step="look at `fleetctl status`, then start anew",
    )


def _keep(edges: Edges, found: Transaction) -> None:
    if found.state is not State.COMMITTED:
        JournalFile(edges.state, found.id).append(Committed(edges.clock.now_s()))
    remove_reserves(found.journal)


def restore(
    edges: Edges, *, transaction: str, run_id: str, on_conflict: OnConflict, hold: bool
) -> Restored:
    """Bring the host back; see `Agent.restore`.

    Raises:
        InputError: there is no such transaction or run.
        LeaseHeld: everything was asked for while somebody is at work.
        NotBack: something could not be restored.
        FilesInConflict: files that somebody changed are left.
    """
    with edges.state.locked(edges.clock, wait_s=LOCK_WAIT_S):
        holding.settle_expired(edges)
        chosen = _choose(edges, transaction, run_id)
        if on_conflict is OnConflict.OVERWRITE:
            _refuse_what_others_rest_on(edges, chosen)
        result = _restore_all(
            edges, chosen, Manner("restore was asked for", on_conflict), hold=hold
        )
    return checked(result, on_conflict)


def _refuse_what_others_rest_on(edges: Edges, chosen: Sequence[Transaction]) -> None:
    """Refuse to overwrite what a later change rests on: that one would bring ours back later on.

    Raises:
        InputError: with the later run.
    """
    ids = {each.id for each in chosen}
    newest_first = transactions.all_newest_first(edges)
    others = [t for t in newest_first if t.state is not State.REVERTED and t.id not in ids]
    for each in chosen:
        for later in others:
            shared = sorted(each.paths & later.paths)
            if later.number > each.number and shared and later.opened:
                raise InputError(
                    f"a later run has changed {shared[0]}",
                    why=f"run {later.opened.lease.run_id} found it as this run had left it",
                    next_step=f"`fleetctl rollback {later.opened.lease.run_id}` first",
                )


def checked(result: Restored, on_conflict: OnConflict = OnConflict.REPORT) -> Restored:
    """Return how a restore ended, or raise what is left to do.

    Args:
        result: of all transactions.
        on_conflict: how it was asked for; a conflict that is only reported is left to do.

    Raises:
        NotBack: something could not be restored.
        FilesInConflict: files that somebody changed are left.
    """
    if result.problems:
        raise with_facts(
            NotBack(
                "the host is not back",
                why="; ".join(result.problems),
                next_step="remove the cause; the host goes on trying, or run the restore again",
            ),
            restored=result,
        )
    is_undecided = on_conflict is OnConflict.REPORT or not result.transactions
    if result.conflicts and is_undecided:
        raise with_facts(
            FilesInConflict(
                "files were changed by somebody else and are left alone",
                why=", ".join(conflict.path for conflict in result.conflicts),
                next_step="see what is told of each; `fleetctl rollback --force` overwrites edits",
            ),
            conflicts=result.conflicts,
            restored=result,
        )
    return result


def _choose(edges: Edges, transaction: str, run_id: str) -> list[Transaction]:
    known = transactions.all_newest_first(edges)
    if transaction:
        chosen = [t for t in known if t.id == transaction]
    elif run_id:
        chosen = [t for t in known if t.opened and t.opened.lease.run_id == run_id]
    else:
        _refuse_if_somebody_works(edges)
        return [t for t in known if t.state is not State.REVERTED]
    if not chosen:
        raise InputError(
            f"the host holds nothing of {transaction or run_id}",
            why="no transaction of this name is in its journals",
            next_step="`fleetctl rollback --list` shows what it holds",
        )
    return chosen


def _refuse_if_somebody_works(edges: Edges) -> None:
    for record in edges.leases.all():
        if edges.leases.remaining_s(record) > 0:
            raise holding.taken(record)


def _restore_all(
    edges: Edges, chosen: Sequence[Transaction], manner: Manner, *, hold: bool
) -> Restored:
    parts, stuck = [], holding.Stuck()
    for each in chosen:
        if each.state is State.REVERTED:
            parts.append(Restored((each.id,), (), (), (), (), ()))
            continue
        waits = stuck.below(each)
        if waits is not None:
            stuck.note(each, waits)
            parts.append(waits)
            continue
        lease_id = holding.guard_rollback(edges, each)
        parts.append(holding.restore_each(edges, [each], manner))
        stuck.note(each, parts[-1])
        _end_if_over(edges, lease_id, hold=hold)
    return holding.combine(parts)


def _end_if_over(edges: Edges, lease_id: str, *, hold: bool) -> None:
    """Drop a lease under which nothing is open any more."""
    under = [t for t in transactions.all_newest_first(edges) if holding.belongs(t, lease_id)]
    if not hold and not any(t.state in OPEN for t in under):
        holding.drop(edges, lease_id)


def release(edges: Edges, lease_id: str) -> Restored:
    """Give a lease back; what is open under it is restored first."""
    with edges.state.locked(edges.clock, wait_s=LOCK_WAIT_S):
        if edges.leases.get(lease_id) is None:
            return NOTHING
        result = holding.end_lease(edges, lease_id, Manner("the lease was released"))
    return checked(result)


def unlock(edges: Edges, lease_id: str) -> Restored:
    """End a lease by its exact id; see `Agent.unlock`.

    Raises:
        InputError: no lease has exactly this id.
    """
    if edges.leases.get(lease_id) is None:
        raise InputError(
            f"no lease has the id {lease_id}",
            why="it is over, or the id is not exact",
            next_step="`fleetctl status` shows every lease with its id",
        )
    return release(edges, lease_id)


def renew(edges: Edges, lease_id: str, length_s: float) -> Lease:
    """Move a lease's deadline; needs no lock, so it works while a change is being applied."""
    check_length(length_s)
    return edges.leases.renew(lease_id, length_s)


def status(edges: Edges) -> Status:
    """Return everything that is held; needs no lock and changes nothing."""
    if not edges.state.exists:
        return Status((), ())
    found = transactions.all_newest_first(edges)
    leases = tuple(
        HeldLease(
            lease=record.lease,
            expires_in_s=round(edges.leases.remaining_s(record), 3),
            deadman=record.armed.kind,
            transactions=tuple(t.id for t in found if holding.belongs(t, record.lease.id)),
        )
        for record in edges.leases.all()
    )
    held = tuple(transactions.held(edges, t) for t in found if t.state is not State.REVERTED)
    return Status(leases, held)


def forget(edges: Edges) -> Forgotten:
    """Remove every trace of fleetctl; see `Agent.forget`.

    Raises:
        LeaseHeld: something is still held.
    """
    with edges.state.locked(edges.clock, wait_s=LOCK_WAIT_S):
        holding.settle_expired(edges)
        now = status(edges)
        if now.leases or now.transactions:
            raise _still_held(now)
        removed = [*_remove_units(), str(edges.state.path)]
        edges.state.remove()
    return Forgotten(tuple(removed))


def _still_held(now: Status) -> LeaseHeld:
    """Return the refusal, with who holds what and the command that ends each."""
    at_work = [held.lease for held in now.leases]
    left = {
        t.run_id: t for t in now.transactions if t.run_id not in {one.run_id for one in at_work}
    }
    told = [f"run {one.run_id} of {one.holder} is at work" for one in at_work]
    told += [f"run {run} of {t.holder} left a {t.state} change" for run, t in left.items()]
    ends = [f"`fleetctl unlock --id {one.id}` ends a run that is at work" for one in at_work]
    ends += [f"`fleetctl rollback {run}` takes a change back" for run in left]
    return LeaseHeld(
        "this host still holds something",
        why="; ".join(told),
        next_step="; ".join(ends),
        exit_code=ExitCode.REFUSED,
    )


def _remove_units() -> list[str]:
    """Remove boot units of leases that are over; there should be none."""
    if os.geteuid() != 0:
        return []
    paths = [*WANTS.glob("fleetctl-recover-*"), *UNITS.glob("fleetctl-recover-*")]
    for path in paths:
        path.unlink()
    return [str(path) for path in map(Path, paths)]
