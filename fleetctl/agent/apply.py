"""Perform a plan, write-ahead: dead-man armed and undo on disk before the first act."""

from __future__ import annotations

import os
from dataclasses import dataclass
from dataclasses import replace as replace_field
from typing import Mapping, Sequence

from fleetctl.agent import holding, reserve, transactions
from fleetctl.agent.by_hand import by_hand
from fleetctl.agent.capture import Refused, capture
from fleetctl.agent.edges import Edges
from fleetctl.agent.journal_file import JournalFile
from fleetctl.agent.manner import Manner
from fleetctl.agent.perform import FAILURES, Performer, StopSignals
from fleetctl.agent.revert import close, revert, take_back
from fleetctl.errors import ApplyFailed, ExitCode, FleetError
from fleetctl.transaction import journal as entries
from fleetctl.transaction.failure import Drifted, FilesInConflict, NotBack, StepFailed, with_facts
from fleetctl.transaction.image import FileBefore, UnitBefore
from fleetctl.transaction.journal import Change, Opened, State
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.outcome import Applied, Granted, Restored
from fleetctl.transaction.step import (
    Step,
    WriteFile,
    describe,
)

LOCK_WAIT_S = 60.0
RESERVE_SLACK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class ApplyRequest:
    """What a controller asks for; see `Agent.apply`."""

    lease: LeaseRequest
    transaction: str
    steps: tuple[Step, ...]
    within: tuple[str, ...]
    contents: Mapping[str, bytes]
    replaces: str = ""


def apply(edges: Edges, request: ApplyRequest) -> Applied:
    """Perform the steps of a request, or leave the host as it was; see `Agent.apply`."""
    with edges.state.locked(edges.clock, wait_s=LOCK_WAIT_S):
        earlier = transactions.read(edges, request.transaction)
        granted, is_new = holding.acquire(edges, request.lease)
        try:
            if earlier is not None:
                return _same_answer(edges, request.transaction, granted)
            return _replace(edges, request, granted)
        except BaseException as error:
            left = _abandon(edges, request, is_new=is_new)
            if left.problems and not isinstance(error, NotBack):
                what = "the change could not be taken back"
                raise failed(what, str(error), None, (), left) from error
            if isinstance(error, OSError):
                raise _no_space(error) from error
            raise


def _abandon(edges: Edges, request: ApplyRequest, *, is_new: bool) -> Restored:
    """Leave nothing open of an apply that failed, and no lease that only it needed."""
    manner, parts = Manner("the apply failed"), []
    found = transactions.read(edges, request.transaction)
    if found is not None and found.state is State.APPLYING:
        parts.append(revert(edges, request.transaction, manner))
    if is_new:
        parts.append(holding.end_lease(edges, request.lease.id, manner))
    return holding.combine(parts)


def _same_answer(edges: Edges, transaction: str, granted: Granted) -> Applied:
    """Answer a request that was performed before and whose answer was lost."""
    found = transactions.read(edges, transaction)
    done = [e for e in found.journal.entries if isinstance(e, entries.Applied)] if found else []
    if found and done and found.state in {State.APPLIED, State.COMMITTED}:
        return Applied(transaction, granted, done[-1].restarts)
    raise ApplyFailed(
        "this change was tried before",
        why=f"transaction {transaction} is {found.state.value if found else 'gone'}",
        next_step="look at `fleetctl status`, then start anew",
    )


def _no_space(error: OSError) -> FleetError:
    return ApplyFailed(
        "the host could not keep what an undo needs",
        why=f"{error.strerror or error} ({error.filename})" if error.filename else str(error),
        next_step="nothing was changed; make room on the host and try again",
        exit_code=ExitCode.REFUSED,
    )


def _replace(edges: Edges, request: ApplyRequest, granted: Granted) -> Applied:
    """Perform a request in the place of an earlier one of the same lease, with one restart.

    The earlier one's files go back first and its restart is left to the new one's. Dying at any
    moment leaves both open, and the end of the lease undoes them newest first.
    """
    old = request.replaces
    if not old:
        return _apply(edges, request, granted)
    _refuse_foreign(edges, old, request.lease.id)
    taken = take_back(edges, old, "replaced by the next change")
    if taken.problems or taken.conflicts:
        raise failed("the change before this one can't be taken back", "", None, (), taken)
    try:
        applied = _apply(edges, request, granted)
    except BaseException:
        failed_one = transactions.read(edges, request.transaction)
        # where its own undo failed both stay open, and the end of the lease undoes it first
        if failed_one is None or failed_one.state not in transactions.OPEN:
            revert(edges, old, Manner("the change that replaced it failed"))
        raise
    replacing = transactions.read(edges, request.transaction)
    close(edges, old, lent_on=_lent(replacing))
    return applied


def _refuse_foreign(edges: Edges, transaction: str, lease_id: str) -> None:
    found = transactions.read(edges, transaction)
    if found is None or found.lease_id != lease_id:
        raise Refused(
            f"cannot replace transaction {transaction}",
            why="it is not one of this lease",
            next_step="`fleetctl rollback --list` on this host",
        )


def _apply(edges: Edges, request: ApplyRequest, granted: Granted) -> Applied:
    replaced = transactions.read(edges, request.replaces) if request.replaces else None
    changes = _captured(edges, request, replaced)
    _refuse_overlap(edges, changes, request.replaces)
    _claim(edges, request.lease.id, changes)
    _store_contents(edges, request)
    file = JournalFile(edges.state, request.transaction)
    opened = _opened(edges, file, request, granted, changes)
    file.create(opened, by_hand(edges.state, request.transaction, changes))
    performer = Performer(edges, file, request.lease.id, request.contents)
    with StopSignals() as signals:
        try:
            with signals.raising():
                reserve.take(opened, request.contents)
                restarts = performer.run(changes)
            file.append(entries.Applied(edges.clock.now_s(), restarts))
        except FAILURES as error:
            raise _undone(edges, file, performer.current, error) from error
    return Applied(request.transaction, granted, restarts)


def _captured(
    edges: Edges, request: ApplyRequest, replaced: transactions.Transaction | None
) -> tuple[Change, ...]:
    try:
        return capture(
            edges,
            request.steps,
            request.within,
            lent=_lent(replaced),
            units=_units_before(replaced),
        )
    except Drifted as drifted:  # it matters more who changed them
        holding.refuse_claimed(edges, "", {os.path.realpath(path) for path in drifted.paths})
        raise


def _lent(found: transactions.Transaction | None) -> frozenset[str]:
    return entries.lent_paths(found.journal.entries) if found is not None else frozenset()


def _units_before(found: transactions.Transaction | None) -> dict[str, UnitBefore]:
    return entries.units_before(found.journal.entries) if found is not None else {}


def _store_contents(edges: Edges, request: ApplyRequest) -> None:
    for step in request.steps:
        if isinstance(step, WriteFile):
            if step.content_sha256 not in request.contents:
                raise Refused(
                    f"cannot write {step.path}",
                    why="its content did not come along",
                    next_step="this is a bug in fleetctl; nothing was changed",
                )
            edges.state.put_object(request.contents[step.content_sha256])
    edges.state.sync_objects()


def _refuse_overlap(edges: Edges, changes: Sequence[Change], replaced: str) -> None:
    paths = {c.before.path for c in changes if isinstance(c.before, FileBefore)}
    for other in transactions.all_newest_first(edges):
        shared = sorted(paths & other.paths) if other.id != replaced else []
        if other.state not in {State.COMMITTED, State.REVERTED} and shared and other.opened:
            record = edges.leases.get(other.lease_id)
            if record is not None:
                raise holding.taken(record)
            raise Refused(
                f"cannot change {shared[0]}",
                why=f"run {other.opened.lease.run_id} changed it and is {other.state.value}",
                next_step="`fleetctl rollback --list` on this host",
            )


def _claim(edges: Edges, lease_id: str, changes: Sequence[Change]) -> None:
    """Claim the files of a change, so that nobody with another state directory changes them."""
    paths = {c.before.path for c in changes if isinstance(c.before, FileBefore)}
    holding.refuse_claimed(edges, "", paths)
    edges.claims.extend(lease_id, paths)
    holding.refuse_claimed(edges, "", paths)  # who claims one in this instant sees ours, or is seen


def _opened(
    edges: Edges,
    file: JournalFile,
    request: ApplyRequest,
    granted: Granted,
    changes: tuple[Change, ...],
) -> Opened:
    newest = transactions.all_newest_first(edges)
    opened = Opened(
        transaction=request.transaction,
        number=newest[0].number + 1 if newest else 1,
        at_s=edges.clock.now_s(),
        lease=granted.lease,
        changes=changes,
        reserves=reserve.plan(file.folder, changes),
        journal_bytes=0,
    )
    return replace_field(opened, journal_bytes=file.length_for(opened))


def _undone(edges: Edges, file: JournalFile, step: Step | None, failure: Exception) -> FleetError:
    """Undo everything and return the error that tells what failed and how the host is now."""
    why = str(failure)
    if isinstance(failure, OSError):
        why = failure.strerror or why
    what = f"{describe(step)} failed" if step else "the host cannot take this change"
    restored = revert(edges, file.transaction, Manner(f"{what}: {why}"))
    return failed(what, why, step, getattr(failure, "log_lines", ()), restored)


def failed(
    what: str, why: str, step: Step | None, log_lines: tuple[str, ...], restored: Restored
) -> FleetError:
    """Return the error for a failed step, by how its undo ended."""
    kind: type[FleetError] = StepFailed
    next_step = "the host is as it was; correct the cause and start anew"
    if restored.problems:
        kind, next_step = NotBack, "the host goes on trying; `fleetctl status` tells how far it is"
        why = f"{why}; and the undo failed: {'; '.join(restored.problems)}"
    elif restored.conflicts:
        kind, next_step = FilesInConflict, "decide with `fleetctl rollback` (--force to overwrite)"
    error = kind(what, why=why, next_step=next_step)
    if step is None and kind is StepFailed:
        error.exit_code = ExitCode.REFUSED
    return with_facts(
        error,
        step=describe(step) if step else "",
        log_lines=log_lines,
        restored=restored,
        conflicts=restored.conflicts,
    )
