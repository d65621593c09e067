"""The journal of a transaction: what was found, what was begun, how it ended.

`Opened` holds every step with its before-image and is on disk before anything else happens.
`Begun` is on disk before its act; `Done` says that the act returned. State is a fold.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Iterable, Sequence, Union

from fleetctl.transaction.image import Before, DirectoryBefore, UnitBefore
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.outcome import ProvenRestart
from fleetctl.transaction.step import (
    LendDirectory,
    ReloadUnits,
    RemoveDirectory,
    RemoveLent,
    RestartUnit,
    RestoreFile,
    Step,
    Undo,
    undo,
)


@dataclass(frozen=True)
class Change:
    """A step with what it found."""

    step: Step
    before: Before


@dataclass(frozen=True)
class Opened:
    """A transaction begins; nothing is changed yet.

    Attributes:
        transaction: its id, chosen by the controller.
        number: counts up on a host, so that undoing several goes newest first whatever
            the clock did.
        at_s: when, on the host's wall clock.
        lease: under which it was opened.
        changes: every step of the plan, in order.
        reserves: (path, bytes) of files that hold disk space for the undo.
        journal_bytes: the length of the journal file from here on; a shorter one is damaged.
    """

    transaction: str
    number: int
    at_s: float
    lease: Lease
    changes: tuple[Change, ...]
    reserves: tuple[tuple[str, int], ...]
    journal_bytes: int


@dataclass(frozen=True)
class Begun:
    """Step `index` may have happened from here on."""

    index: int


@dataclass(frozen=True)
class Done:
    """Step `index` happened."""

    index: int


@dataclass(frozen=True)
class Applied:
    """Every step happened and the restarts were proven."""

    at_s: float
    restarts: tuple[ProvenRestart, ...] = ()


@dataclass(frozen=True)
class Committed:
    """The change stays until somebody rolls it back; the dead-man no longer counts."""

    at_s: float


@dataclass(frozen=True)
class Reverting:
    """An undo began; it may be repeated until `Reverted`."""

    at_s: float
    why: str


@dataclass(frozen=True)
class UnitRestored:
    """An undo restarted a unit; this instance runs on the files of before."""

    unit: str
    invocation: str


@dataclass(frozen=True)
class Conflicted:
    """Everything is back except these files, which somebody else changed."""

    at_s: float
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Reverted:
    """The host is as it was.

    Attributes:
        at_s: when.
        kept: files left as somebody else made them, by their decision.
    """

    at_s: float
    kept: tuple[str, ...] = ()


Entry = Union[
    Opened, Begun, Done, Applied, Committed, Reverting, UnitRestored, Conflicted, Reverted
]


class State(enum.Enum):
    """Where a transaction stands."""

    APPLYING = "applying"
    APPLIED = "applied"
    COMMITTED = "committed"
    REVERTING = "reverting"
    CONFLICT = "conflict"
    REVERTED = "reverted"
    DAMAGED = "damaged"


STATE_AFTER = {
    Opened: State.APPLYING,
    Applied: State.APPLIED,
    Committed: State.COMMITTED,
    Reverting: State.REVERTING,
    Conflicted: State.CONFLICT,
    Reverted: State.REVERTED,
}


def state(entries: Iterable[Entry]) -> State:
    """Return where a transaction stands after `entries`."""
    current = State.APPLYING
    for entry in entries:
        current = STATE_AFTER.get(type(entry), current)
    return current


def opened(entries: Sequence[Entry]) -> Opened:
    """Return the first entry.

    Raises:
        ValueError: there is none, or it is of another kind.
    """
    if not entries or not isinstance(entries[0], Opened):
        raise ValueError("the journal does not begin with Opened")
    return entries[0]


def pending_undo(entries: Sequence[Entry], *, torn: bool = False) -> list[Undo]:
    """Return what brings the host back: files newest first, a reload, restarts, what was lent.

    A step that was begun may have happened or not, so it is undone too: every undo is
    idempotent. Once anything was begun every unit of the plan is in the list, whether its
    restart was reached or not: a service that restarted by itself in between runs the
    changed files, and the undo of a restart asks the unit, not the journal.

    Args:
        entries: the journal.
        torn: the last write to the journal did not arrive whole, so one more step
            than it shows may have been begun.
    """
    changes = opened(entries).changes
    if state(entries) is State.REVERTED:
        return []
    count = max((e.index + 1 for e in entries if isinstance(e, Begun)), default=0)
    begun = changes[: count + 1 if torn else count]
    if not begun:
        return []
    undos = [u for change in reversed(begun) for u in undo(change.step, change.before)]
    files = [u for u in undos if isinstance(u, (RestoreFile, RemoveDirectory))]
    # a service may write into what was lent to it as long as it runs
    lent = [u for u in undos if isinstance(u, RemoveLent)]
    return [*files, *_reload(changes), *_restarts(changes), *lent]


def lent_paths(entries: Sequence[Entry]) -> frozenset[str]:
    """Return the directories that a transaction lends to the service."""
    return frozenset(
        change.before.path
        for change in opened(entries).changes
        if isinstance(change.step, LendDirectory) and isinstance(change.before, DirectoryBefore)
    )


def units_before(entries: Sequence[Entry]) -> dict[str, UnitBefore]:
    """Return the units that a transaction restarts, as it found each."""
    found: dict[str, UnitBefore] = {}
    for change in opened(entries).changes:
        if isinstance(change.step, RestartUnit) and isinstance(change.before, UnitBefore):
            found.setdefault(change.step.unit, change.before)
    return found


def _reload(changes: tuple[Change, ...]) -> list[Undo]:
    return [ReloadUnits()] if any(isinstance(c.step, ReloadUnits) for c in changes) else []


def _restarts(changes: tuple[Change, ...]) -> list[Undo]:
    """One per unit; when a plan restarts a unit twice, the first before-image counts."""
    first: dict[str, tuple[Undo, ...]] = {}
    for change in changes:
        if isinstance(change.step, RestartUnit):
            first.setdefault(change.step.unit, undo(change.step, change.before))
    return [u for undos in first.values() for u in undos]
