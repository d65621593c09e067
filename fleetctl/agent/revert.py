"""Bring back what a transaction changed: absolute, repeatable, and blind to who asks."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Callable, Collection, Sequence

from fleetctl.agent import systemd
from fleetctl.agent.edges import Edges
from fleetctl.agent.files import remove_if_there
from fleetctl.agent.journal_file import Damage, Journal, JournalFile
from fleetctl.agent.manner import Manner, OnConflict, Tally
from fleetctl.agent.paths_back import PathsBack
from fleetctl.agent.restart import RESTARTING, Restarter, RestartFailed
from fleetctl.agent.walk import PathRefused, resolved
from fleetctl.transaction.image import UnitBefore
from fleetctl.transaction.journal import (
    Conflicted,
    Reverted,
    Reverting,
    State,
    UnitRestored,
    opened,
    pending_undo,
    state,
)
from fleetctl.transaction.outcome import Restored
from fleetctl.transaction.step import (
    ReloadUnits,
    RemoveDirectory,
    RemoveLent,
    RestoreFile,
    RestoreUnit,
    Undo,
)


def revert(edges: Edges, transaction: str, manner: Manner) -> Restored:
    """Undo one transaction; the lock must be held.

    Never raises for what the host does: problems are part of the answer, and the transaction
    stays open until they are gone.
    """
    file = JournalFile(edges.state, transaction)
    journal = file.read()
    if journal.damage is Damage.BROKEN:
        return _damaged(file, journal, manner)
    if state(journal.entries) is State.REVERTED:
        return Tally().restored(transaction, over=True)
    if state(journal.entries) is not State.REVERTING:
        file.append(Reverting(edges.clock.now_s(), manner.why))
    tally = Tally()
    remove_reserves(journal)
    undos = pending_undo(journal.entries, torn=journal.damage is Damage.TORN)
    _Reverter(edges, file, manner, tally).run(undos)
    return _finish(edges, file, manner, tally)


def take_back(edges: Edges, transaction: str, why: str) -> Restored:
    """Bring the files of a transaction back, but leave its units to the change that replaces it.

    The lock must be held. The transaction stays open until `close`, so that whoever dies in
    between finds its restart still to be done.
    """
    file = JournalFile(edges.state, transaction)
    journal = file.read()
    if journal.damage is Damage.BROKEN:
        return _damaged(file, journal, Manner(why))
    tally = Tally()
    if state(journal.entries) is State.REVERTED:
        return tally.restored(transaction, over=True)
    if state(journal.entries) is not State.REVERTING:
        file.append(Reverting(edges.clock.now_s(), why))
    remove_reserves(journal)
    undos = pending_undo(journal.entries, torn=journal.damage is Damage.TORN)
    files = [undo for undo in undos if not isinstance(undo, (RestoreUnit, RemoveLent))]
    _Reverter(edges, file, Manner(why), tally).run(files)
    return tally.restored(transaction, over=False)


def close(edges: Edges, transaction: str, *, lent_on: Collection[str] = ()) -> None:
    """End a transaction that was taken back: its unit was restarted by what replaced it.

    What it had lent to the service goes now, unless the next change lends it on.
    """
    file = JournalFile(edges.state, transaction)
    journal = file.read()
    if state(journal.entries) is State.REVERTED:
        return
    undos = pending_undo(journal.entries)
    lent = [u for u in undos if isinstance(u, RemoveLent) and u.path not in lent_on]
    tally = Tally()
    _Reverter(edges, file, Manner("replaced"), tally).run(lent)
    if not (
        tally.problems or tally.conflicts
    ):  # otherwise it stays open, and the end of the lease tries again
        file.append(Reverted(edges.clock.now_s(), kept=()))


def _damaged(file: JournalFile, journal: Journal, manner: Manner) -> Restored:
    """Report; once somebody has restored by hand and settles for what is there, forget it."""
    by_hand = file.folder / "by-hand.sh"
    tally = Tally()
    if manner.on_conflict is OnConflict.KEEP:
        file.remove()
        return tally.restored(file.transaction, over=True)
    tally.problems.append(
        f"transaction {file.transaction}: {journal.why}; nothing was undone on such evidence. "
        f"{by_hand} on the host restores every file by hand"
    )
    return tally.restored(file.transaction, over=False)


def remove_reserves(journal: Journal) -> None:
    """Give back the disk space that was held for the undo."""
    for path, _ in opened(journal.entries).reserves:
        try:
            with resolved(path, follow=False) as place:
                remove_if_there(place.directory_fd, place.name)
        except (OSError, PathRefused):  # noqa: PERF203 - its directory may be gone, and it with it
            continue


def _finish(edges: Edges, file: JournalFile, manner: Manner, tally: Tally) -> Restored:
    problem = file.folder / "problem"
    if tally.problems:
        with contextlib.suppress(OSError):  # a full disk is a problem that has been told already
            text = "\n".join(tally.problems)
            edges.state.write(problem, text.encode(errors="surrogateescape"))
        return tally.restored(file.transaction, over=False)
    if problem.exists():
        problem.unlink()
    paths = tuple(conflict.path for conflict in tally.conflicts)
    if paths and manner.on_conflict is OnConflict.REPORT:
        file.append(Conflicted(edges.clock.now_s(), paths))
        return tally.restored(file.transaction, over=False)
    file.append(Reverted(edges.clock.now_s(), kept=paths))
    return tally.restored(file.transaction, over=True)


class _Reverter:
    """Performs undos, one after the other, whatever becomes of each."""

    def __init__(self, edges: Edges, file: JournalFile, manner: Manner, tally: Tally) -> None:
        self._edges = edges
        self._file = file
        self._manner = manner
        self._tally = tally
        self._paths = PathsBack(edges.state, manner, tally)

    def run(self, undos: Sequence[Undo]) -> None:
        for undo in undos:
            if isinstance(undo, RestoreFile):
                self._guarded(undo.before.path, partial(self._paths.file_back, undo))
            elif isinstance(undo, RemoveDirectory):
                self._guarded(undo.path, partial(self._paths.directory_gone, undo))
            elif isinstance(undo, RemoveLent):
                self._guarded(undo.path, partial(self._paths.lent_gone, undo))
            elif self._tally.problems:
                return  # a unit must not start on files that are half of before, half of now
            elif isinstance(undo, ReloadUnits):
                self._guarded("systemd's unit files", self._reload)
            else:
                self._guarded(undo.step.unit, partial(self._unit_back, undo))

    def _guarded(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            other = str(error.filename or "")
            where = f" ({other})" if other.startswith("/") and other != what else ""
            self._tally.problems.append(f"{what}: {error.strerror or error}{where}")
        except (PathRefused, ValueError, RestartFailed, systemd.SystemctlMissing) as error:
            log = "\n".join(getattr(error, "log_lines", ()))
            self._tally.problems.append(f"{what}: {error}" + (f"\n{log}" if log else ""))

    def _reload(self) -> None:
        said = self._edges.systemctl.run("daemon-reload")
        if said.exit_code != 0:
            raise OSError(f"daemon-reload: {said.errors}")

    def _unit_back(self, undo: RestoreUnit) -> None:
        properties = self._edges.systemctl.show(undo.step.unit)
        now = systemd.unit_before(properties)
        if self._manner.at_boot:
            self._leave_to_boot(undo)
            return
        if not undo.before.active:
            self._end_unit(undo, now)
            return
        if not now.active or now.invocation != undo.before.invocation:
            self._run_again(undo, now)
        self._restarter().start_dependents(undo.step.unit, undo.before.stopped_with)

    def _end_unit(self, undo: RestoreUnit, now: UnitBefore) -> None:
        """Stop a unit that did not run; how it ended is no failure that was there before."""
        if now.active:
            self._restarter().stop(undo.step, kill=True)
            self._tally.stopped.append(undo.step.unit)
        if undo.before.state.startswith("inactive"):
            self._restarter().clear_failure(undo.step.unit)

    def _run_again(self, undo: RestoreUnit, now: UnitBefore) -> None:
        if undo.before.state.partition("/")[2] in RESTARTING:
            self._restarter().start_unproven(undo.step)
        elif self._tally.changed or not self._runs_restored(undo.step.unit, now.invocation):
            proven = self._restarter().restart(undo.step, kill=True)
            self._file.append(UnitRestored(undo.step.unit, proven.invocation))
            self._tally.restarts.append(proven)

    def _restarter(self) -> Restarter:
        return Restarter(self._edges.systemctl, self._edges.clock, checkpoint=lambda: None)

    def _runs_restored(self, unit: str, invocation: str) -> bool:
        """Tell whether an earlier attempt has restarted the unit on the files of before."""
        return UnitRestored(unit, invocation) in self._file.read().entries

    def _leave_to_boot(self, undo: RestoreUnit) -> None:
        """At boot systemd starts what is enabled, after us; the rest that ran is queued."""
        ran = [undo.step.unit, *undo.before.stopped_with] if undo.before.active else []
        for unit in ran:
            now = systemd.unit_before(self._edges.systemctl.show(unit))
            if not now.active and now.enabled != "enabled":
                self._edges.systemctl.run("start", "--no-block", "--", unit)
