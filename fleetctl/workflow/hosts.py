"""What fleetctl holds on hosts, and bringing them back: needs SSH to the host and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleetctl.errors import (
    ExitCode,
    FleetError,
    HostError,
    InputError,
    LeaseHeld,
    StoreError,
)
from fleetctl.spec.inventory import Inventory
from fleetctl.store.left_open import LeftOpen, left_open, note_rollback
from fleetctl.transaction.outcome import Restored
from fleetctl.transaction.snapshot import HeldTransaction, Query, Status
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.reach import reach

T = TypeVar("T")
_MAX_PARALLEL = 16


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What one host answered, or why it did not; one host's failure never stops the others."""

    host: str
    value: T | None
    error: FleetError | None = None


def ask_each(
    edges: Edges, inventory: Inventory, names: Sequence[str], ask: Callable[[Reached], T]
) -> tuple[Answer[T], ...]:
    """Ask every host, in parallel, and return each one's answer or error."""

    def one(name: str) -> Answer[T]:
        try:
            host = reach(edges, name, inventory.hosts[name])
            try:
                return Answer(name, ask(host))
            finally:
                host.transport.close()
        except FleetError as error:
            return Answer(name, None, error)

    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        return tuple(pool.map(one, names))


def statuses(
    edges: Edges, inventory: Inventory, names: Sequence[str]
) -> tuple[Answer[Status], ...]:
    """Return what fleetctl holds on each host."""
    return ask_each(edges, inventory, names, lambda host: host.agent.status())


@dataclass(frozen=True)
class Known:
    """What a host holds, beside what runs of this machine remember of it.

    Attributes:
        status: of the host.
        forgotten: what runs left there of which the host knows nothing, newest first.
    """

    status: Status
    forgotten: tuple[LeftOpen, ...]


def known(edges: Edges, inventory: Inventory, names: Sequence[str]) -> tuple[Answer[Known], ...]:
    """Return what each host holds, and what this machine's runs say beyond that."""
    return ask_each(edges, inventory, names, lambda host: _known(edges, host))


def _known(edges: Edges, host: Reached) -> Known:
    status = host.agent.status()
    held = {t.run_id for t in status.transactions} | {one.lease.run_id for one in status.leases}
    found = [left for left in left_open(edges.runs, host.name) if left.run_id not in held]
    if any(left.machine_id for left in found):
        # another machine may bear the name by now: what was done to the old one is not its matter
        now = host.agent.observe(Query()).facts.machine_id
        found = [left for left in found if left.machine_id in ("", now) or not now]
    return Known(status, tuple(found))


def rollback(
    edges: Edges, inventory: Inventory, names: Sequence[str], *, run_id: str, force: bool
) -> tuple[Answer[Restored], ...]:
    """Undo what a run left on hosts, or everything that nobody is working on.

    An empty `run_id` leaves alone what stands under somebody's living lease.

    Raises:
        InputError: `run_id` is the beginning of more than one run that hosts hold, or of none.
    """
    if run_id:
        found = statuses(edges, inventory, names)
        _refuse_ambiguous(run_id, found)
        _refuse_unheld(run_id, found)
    return ask_each(
        edges, inventory, names, lambda host: _roll_back(edges, host, run_id, force=force)
    )


def _roll_back(edges: Edges, host: Reached, run_id: str, *, force: bool) -> Restored:
    now = host.agent.status()
    chosen = [t for t in now.transactions if not run_id or t.run_id.startswith(run_id)]
    exact = [t for t in chosen if t.run_id == run_id]
    chosen = exact or chosen
    if not run_id:
        _refuse_living(host.name, now, chosen)
    # newest first, as the status tells them: each gives back what the one before it had left
    done = _joined([host.agent.restore(transaction=held.id, force=force) for held in chosen])
    if not done.conflicts and not done.problems:
        for run in dict.fromkeys(held.run_id for held in chosen):
            with contextlib.suppress(StoreError):  # a rollback needs no local state
                note_rollback(edges.runs, run, host.name, edges.clock.now_s())
    return done


def _refuse_ambiguous(run_id: str, found: Sequence[Answer[Status]]) -> None:
    """Refuse a beginning that several runs share: the others may be somebody's living work."""
    held = {
        transaction.run_id
        for answer in found
        if answer.value is not None
        for transaction in answer.value.transactions
        if transaction.run_id.startswith(run_id)
    }
    if len(held) > 1 and run_id not in held:
        raise InputError(
            f"{run_id} is the beginning of {len(held)} runs",
            why=f"the hosts hold {', '.join(sorted(held))}",
            next_step="name one run in full",
        )


def _refuse_unheld(run_id: str, found: Sequence[Answer[Status]]) -> None:
    """Refuse a name that fits nothing, unless a host that did not answer may hold it."""
    if any(answer.value is None for answer in found):
        return
    held = {t.run_id for answer in found if answer.value for t in answer.value.transactions}
    if any(each.startswith(run_id) for each in held):
        return
    _refuse_unchanged(run_id, found)
    raise InputError(
        f"nothing of run {run_id} is held",
        why="; ".join(_what_is_held(answer) for answer in found),
        next_step="if you meant one of these runs, name it: "
        + ", ".join(f"`fleetctl rollback {each}`" for each in sorted(held))
        if held
        else "`fleetctl status` shows every host, and what runs of this machine left there that the"
        " host knows nothing of",
    )


def _refuse_unchanged(run_id: str, found: Sequence[Answer[Status]]) -> None:
    """Refuse to bring back what a run has not changed: it holds a lease, and nothing more."""
    for answer in found:
        for held in answer.value.leases if answer.value else ():
            if held.lease.run_id.startswith(run_id):
                raise InputError(
                    f"run {held.lease.run_id} has changed nothing on {answer.host}",
                    why=f"it only holds a lease there, which ends in {held.expires_in_s:.0f} s"
                    " unless renewed",
                    next_step="wait until it has ended, or"
                    f" `fleetctl unlock --id {held.lease.id} --host {answer.host}`",
                )


def _what_is_held(answer: Answer[Status]) -> str:
    held = answer.value.transactions if answer.value else ()
    runs = ", ".join(sorted({transaction.run_id for transaction in held}))
    return f"{answer.host} holds {runs or 'nothing'}"


def _refuse_living(host: str, held: Status, chosen: Sequence[HeldTransaction]) -> None:
    for lease in held.leases:
        mine = [t.id for t in chosen if t.id in lease.transactions]
        if mine and lease.expires_in_s > 0:
            raise LeaseHeld(
                f"{lease.lease.holder} is working on {host}",
                why=f"run {lease.lease.run_id} ({lease.lease.purpose}) holds {lease.lease.unit}",
                next_step=f"name the run: `fleetctl rollback {lease.lease.run_id} --host {host}`",
            )


def _joined(results: Sequence[Restored]) -> Restored:
    return Restored(
        transactions=tuple(t for result in results for t in result.transactions),
        files=tuple(dict.fromkeys(f for result in results for f in result.files)),
        restarts=tuple(r for result in results for r in result.restarts),
        stopped=tuple(s for result in results for s in result.stopped),
        conflicts=tuple(c for result in results for c in result.conflicts),
        problems=tuple(p for result in results for p in result.problems),
    )


def unlock(
    edges: Edges, inventory: Inventory, names: Sequence[str], lease_id: str
) -> Answer[Restored]:
    """End the lease of exactly this id, on whichever host holds it.

    Raises:
        InputError: no reachable host holds it.
    """
    found = statuses(edges, inventory, names)
    holders = [
        answer.host
        for answer in found
        if answer.value and any(held.lease.id == lease_id for held in answer.value.leases)
    ]
    if not holders:
        silent = [answer.host for answer in found if answer.error]
        raise InputError(
            f"no lease has the id {lease_id}",
            why="the id has to be exact"
            + (f"; {', '.join(silent)} did not answer" if silent else ""),
            next_step="`fleetctl status` shows every lease with its id",
        )
    (answer,) = ask_each(
        edges,
        inventory,
        holders[:1],
        lambda host: host.agent.unlock(lease_id, by=edges.holder),
    )
    return answer


def worst_exit_code(answers: Sequence[Answer[T]]) -> ExitCode:
    """Return the exit code that tells the state of all hosts: the worst one's."""
    return max(
        (_code_of(answer.error) for answer in answers), key=_GRAVITY.index, default=ExitCode.OK
    )


_GRAVITY = (
    ExitCode.OK,
    ExitCode.REFUSED,
    ExitCode.CONFLICT,
    ExitCode.FAILED_RESTORED,
    ExitCode.FAILED_NOT_RESTORED,
    ExitCode.INTERNAL,
)


def _code_of(error: FleetError | None) -> ExitCode:
    if error is None:
        return ExitCode.OK
    if isinstance(error, HostError):
        # a host that can't be asked may hold anything: that is not "refused before any change"
        return ExitCode.FAILED_NOT_RESTORED
    return error.exit_code if error.exit_code in _GRAVITY else ExitCode.INTERNAL
