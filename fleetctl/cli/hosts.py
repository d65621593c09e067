"""`fleetctl status`, `rollback`, `unlock`, `forget`: what is held on hosts, and its end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fleetctl.cli.boundary import conflict_lines, error_as_json
from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, RunsPath, Targets
from fleetctl.cli.typed import as_here
from fleetctl.errors import ExitCode, FleetError
from fleetctl.transaction.journal import State

if TYPE_CHECKING:  # these bring SSH with them, and --help has to stay quick
    from pathlib import Path

    from fleetctl.spec.inventory import Inventory
    from fleetctl.store.left_open import LeftOpen
    from fleetctl.transaction.outcome import Restored
    from fleetctl.transaction.snapshot import HeldLease, HeldTransaction, Status
    from fleetctl.workflow.edges import Edges
    from fleetctl.workflow.hosts import Answer, Known

T = TypeVar("T")
_ON_A_FLEET = re.compile(r"`fleetctl ((?:rollback|unlock|status)(?:(?! --host)[^`])*)`")
_SHOWN_RUNS = 3
_CHANGES = {State.CONFLICT.value: "change in conflict"}


def status(
    targets: Targets,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show who works on which host, until when, and what fleetctl holds there.

    What runs of this machine left there, and the host knows nothing of, stands beside it.
    """
    from fleetctl.workflow.hosts import known

    answers = _on_hosts(targets, inventory, known, runs)
    _print(answers, as_json, _known_lines)
    raise typer.Exit(_exit_code(answers))


def rollback(
    targets: Targets,
    run: Annotated[str, typer.Argument(help="A run's id or its beginning; default: all.")] = "",
    show: Annotated[bool, typer.Option("--list", help="Only show what is held.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that somebody else changed.")
    ] = False,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Bring hosts back: undo what a run left, kept or not. Needs no local state."""
    from fleetctl.workflow.hosts import rollback as roll_back

    if show:
        status(targets, inventory, runs, as_json)
    answers = _on_hosts(
        targets,
        inventory,
        lambda edges, fleet, names: roll_back(edges, fleet, names, run_id=run, force=force),
        runs,
    )
    nothing = f"nothing of run {run} is held" if run else "nothing was held"
    _print(answers, as_json, lambda done: _restored_lines(done, nothing))
    raise typer.Exit(_exit_code(answers))


def unlock(
    targets: Targets,
    lease_id: Annotated[str, typer.Option("--id", help="The exact id of the lease.")],
    inventory: InventoryPath = None,
    as_json: AsJson = False,
) -> None:
    """End somebody's lease by its exact id; what is open under it is restored first."""
    from fleetctl.workflow.hosts import unlock as end_lease

    answers = _on_hosts(
        targets, inventory, lambda edges, fleet, names: (end_lease(edges, fleet, names, lease_id),)
    )
    _print(answers, as_json, _restored_lines)
    raise typer.Exit(_exit_code(answers))


def forget(
    host: Annotated[str, typer.Argument(help="Host, group or role.")],
    inventory: InventoryPath = None,
    as_json: AsJson = False,
) -> None:
    """Remove every trace of fleetctl from hosts; refused while something is held there."""
    from fleetctl.workflow.hosts import ask_each

    answers = _on_hosts(
        [host],
        inventory,
        lambda edges, fleet, names: ask_each(edges, fleet, names, lambda h: h.agent.forget()),
    )
    _print(answers, as_json, lambda found: [f"removed {path}" for path in found.removed])
    raise typer.Exit(_exit_code(answers))


def _on_hosts(
    targets: Sequence[str],
    inventory: InventoryPath,
    ask: Callable[[Edges, Inventory, Sequence[str]], tuple[Answer[T], ...]],
    runs: Path = DEFAULT_RUNS,
) -> tuple[Answer[T], ...]:
    from fleetctl.cli.wiring import edges, the_inventory

    console = Console()
    fleet = the_inventory(inventory, console)
    chosen = targets or list(fleet.hosts)
    names = list(dict.fromkeys(name for target in chosen for name in fleet.select(target)))
    with edges(runs, console) as outside:
        return ask(outside, fleet, names)


def _exit_code(answers: Sequence[Answer[T]]) -> ExitCode:
    from fleetctl.workflow.hosts import worst_exit_code

    return worst_exit_code(answers)


def _print(
    answers: Sequence[Answer[T]], as_json: bool, lines: Callable[[T], Iterable[str]]
) -> None:
    for answer in answers:
        if answer.error is not None:
            answer.error.next_step = only_there(answer.error.next_step, answer.host)
    if as_json:
        print_json([_as_json(answer) for answer in answers])
        return
    for answer in answers:
        if answer.value is not None:
            print_lines(_headed(answer.host, lines(answer.value)))
        if answer.error is not None:
            print_lines(_headed(answer.host, _error_lines(answer.error)))


def only_there(next_step: str, host: str) -> str:
    """Return a next step whose commands work on one host: without it they would on the fleet."""
    return _ON_A_FLEET.sub(rf"`fleetctl \1 --host {host}`", next_step)


def _as_json(answer: Answer[T]) -> dict[str, object]:
    value, error = answer.value, answer.error
    shown = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else None  # type: ignore[arg-type]
    if shown is not None and "forgotten" in shown:  # beside what the host itself says
        shown = {**shown["status"], "forgotten": shown["forgotten"]}
    failure = error and {"conflicts": [], **error_as_json(error)}
    return {"host": answer.host, "answer": shown, "error": failure}


def _headed(host: str, lines: Iterable[str]) -> Iterator[str]:
    yield from (f"{host}: {line}" for line in lines)


def _error_lines(error: FleetError) -> Iterator[str]:
    yield f"error: {error.what}"
    yield from (f"  why: {line}" for line in error.why.splitlines())
    yield from (f"  {line}" for line in conflict_lines(error))
    yield f"  hint: {as_here(error.next_step)}"


def _known_lines(known: Known) -> Iterator[str]:
    yield from _status_lines(known.status)
    yield from map(_forgotten_line, known.forgotten[:_SHOWN_RUNS])
    more = len(known.forgotten) - _SHOWN_RUNS
    if more > 0:
        yield f"  note: and {more} earlier runs; `--json` has them all"


def _forgotten_line(left: LeftOpen) -> str:
    """Return what a run remembers and the host does not; how the host is, is not known here."""
    if left.state == "kept":
        told = "kept its change here", "it was taken back from elsewhere", "results show"
    else:
        told = "was not seen to end here", "it restored itself", "resume"
    what, likely, command = told
    return as_here(
        f"  note: run {left.run_id} of this machine {what} ({_utc(left.at_s)}), and the host knows"
        f" nothing of it: {likely}, or its state was deleted; `fleetctl {command} {left.run_id}`"
        f" {'looks at it and goes on' if command == 'resume' else 'says what it was'}"
    )


def _status_lines(held: Status) -> Iterator[str]:
    if not held.leases:
        yield "free; still held here:" if held.transactions else "free; nothing is held"
    for lease in held.leases:
        yield from _lease_lines(lease)
    for transaction in held.transactions:
        yield from _transaction_lines(transaction)


def _lease_lines(held: HeldLease) -> Iterator[str]:
    lease = held.lease
    left = (
        f"ends in {held.expires_in_s:.0f} s unless renewed"
        if held.expires_in_s > 0
        else "has ended; the dead-man is restoring"
    )
    yield f"{lease.unit or 'no unit'} held by {lease.holder} ({lease.purpose})"
    yield f"  run {lease.run_id}, since {_utc(lease.since_s)}, until {_utc(lease.until_s)}"
    yield f"  lease {lease.id} {left}; dead-man: {held.deadman}"


def _utc(at_s: float) -> str:
    """Return a moment of the host's clock."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _transaction_lines(held: HeldTransaction) -> Iterator[str]:
    since = f", since {_utc(held.since_s)}" if held.since_s else ""
    change = _CHANGES.get(held.state, f"{held.state} change")
    yield f"{change} of run {held.run_id} by {held.holder} ({held.purpose}){since}"
    yield from (f"  {step}" for step in held.steps)
    yield from (f"  in conflict: {path}" for path in held.conflicts)
    if held.problem:
        yield f"  problem: {held.problem}"


def _restored_lines(done: Restored, nothing: str = "nothing was held") -> Iterator[str]:
    if not done.transactions and not done.problems:
        yield nothing
    yield from (f"restored {path}" for path in done.files)
    yield from (f"restarted {restart.unit}" for restart in done.restarts)
    yield from (f"stopped {unit}, as it had been" for unit in done.stopped)
    yield from (f"left alone, somebody changed it: {conflict.path}" for conflict in done.conflicts)
    yield from (f"not restored: {problem}" for problem in done.problems)
    told = (done.files, done.restarts, done.stopped, done.conflicts, done.problems)
    if done.transactions and not any(told):
        yield "nothing was left to restore"
