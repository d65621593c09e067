"""The transactions of a host: which are open, kept or broken, and tidying up after those over."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from fleetctl.agent.edges import Edges
from fleetctl.agent.journal_file import Damage, Journal, JournalFile
from fleetctl.transaction.image import FileBefore, FileImage
from fleetctl.transaction.journal import Opened, State, state
from fleetctl.transaction.snapshot import HeldFile, HeldTransaction
from fleetctl.transaction.step import WriteFile, describe

OPEN = (State.APPLYING, State.APPLIED, State.REVERTING)
KEPT_JOURNALS = 20
OLD_AGENT_S = 30 * 24 * 3600.0


@dataclass(frozen=True)
class Transaction:
    """One transaction as its journal tells it.

    Attributes:
        id: of the transaction.
        opened: its first entry; None when that cannot be read.
        state: where it stands.
        journal: everything.
    """

    id: str
    opened: Opened | None
    state: State
    journal: Journal

    @property
    def number(self) -> int:
        """Return its place in the host's history; one that cannot be read counts as oldest."""
        return self.opened.number if self.opened else 0

    @property
    def lease_id(self) -> str:
        """Return the lease it was opened under; empty when that cannot be read."""
        return self.opened.lease.id if self.opened else ""

    @property
    def paths(self) -> frozenset[str]:
        """Return the real paths it changes."""
        changes = self.opened.changes if self.opened else ()
        return frozenset(c.before.path for c in changes if isinstance(c.before, FileBefore))


def read(edges: Edges, transaction: str) -> Transaction | None:
    """Return one transaction, if the host knows it."""
    file = JournalFile(edges.state, transaction)
    if not file.folder.is_dir():
        return None
    journal = file.read()
    if not file.folder.is_dir():
        return None  # it was tidied away just now
    first = journal.entries[0] if journal.entries else None
    opened = first if isinstance(first, Opened) else None
    broken = journal.damage is Damage.BROKEN
    where = State.DAMAGED if broken else state(journal.entries)
    return Transaction(transaction, opened, where, journal)


def all_newest_first(edges: Edges) -> tuple[Transaction, ...]:
    """Return every transaction the host knows, newest first."""
    if not edges.state.exists:
        return ()
    ids = [path.name for path in (edges.state.path / "transactions").iterdir()]
    found = [t for name in ids if (t := read(edges, name)) is not None]
    return tuple(sorted(found, key=lambda t: (t.number, t.id), reverse=True))


def held(edges: Edges, found: Transaction) -> HeldTransaction:
    """Return a transaction for people."""
    lease = found.opened.lease if found.opened else None
    changes = found.opened.changes if found.opened else ()
    problem = JournalFile(edges.state, found.id).folder / "problem"
    text = problem.read_text(errors="replace") if problem.exists() else ""
    last = found.journal.entries[-1] if found.journal.entries else None
    return HeldTransaction(
        id=found.id,
        run_id=lease.run_id if lease else "",
        holder=lease.holder if lease else "",
        purpose=lease.purpose if lease else "",
        unit=lease.unit if lease else "",
        state=found.state.value,
        since_s=found.opened.at_s if found.opened else 0.0,
        steps=tuple(describe(change.step) for change in changes),
        files=tuple(
            _held_file(edges, c.before) for c in changes if isinstance(c.before, FileBefore)
        ),
        conflicts=getattr(last, "paths", ()) if found.state is State.CONFLICT else (),
        problem=found.journal.why or text,
    )


def _held_file(edges: Edges, before: FileBefore) -> HeldFile:
    if not isinstance(before.image, FileImage):
        return HeldFile(before.path, None, "")
    digest = before.image.sha256
    return HeldFile(before.path, digest, str(edges.state.object_path(digest)))


def tidy(edges: Edges) -> None:
    """Remove left-overs: half-written files, old journals, objects that nothing can need any more.

    Where any journal is damaged everything stays, for restoring by hand.
    """
    edges.state.clear(edges.clock)
    found = all_newest_first(edges)
    if any(t.state is State.DAMAGED for t in found):
        return
    over = [t for t in found if t.state is State.REVERTED]
    for old in over[KEPT_JOURNALS:]:
        JournalFile(edges.state, old.id).remove()
    needed = {digest for t in found if t.state is not State.REVERTED for digest in _objects(t)}
    for path in (edges.state.path / "objects").iterdir():
        if path.name not in needed and not path.is_dir():
            path.unlink(missing_ok=True)


def remove_old_agents(edges: Edges) -> None:
    """Remove agents of other versions that came long ago and no lease's dead-man can need.

    Where any journal is damaged they stay, as everything does.
    """
    if any(t.state is State.DAMAGED for t in all_newest_first(edges)):
        return
    if edges.leases.all() or edges.leases.unreadable():
        return
    current = Path(edges.program.agent)
    for path in (edges.state.path / "agent").iterdir():
        age_s = edges.clock.now_s() - path.stat().st_mtime
        if path.name in {current.name, current.stem} or age_s < OLD_AGENT_S:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _objects(found: Transaction) -> Iterator[str]:
    for change in found.opened.changes if found.opened else ():
        if isinstance(change.step, WriteFile):
            yield change.step.content_sha256
        if isinstance(change.before, FileBefore):
            if isinstance(change.before.image, FileImage):
                yield change.before.image.sha256
            for _, image in change.before.bytecode:
                yield image.sha256
