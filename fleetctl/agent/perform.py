"""The acts themselves: each begins in the journal, happens, and is done in the journal."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Iterator, Mapping, Sequence

from fleetctl.agent import bytecode
from fleetctl.agent.edges import Edges
from fleetctl.agent.files import (
    NEW_FILE_MODE,
    ChangedMeanwhile,
    Look,
    look,
    remove_expected,
    replace,
    set_metadata,
    set_new,
)
from fleetctl.agent.journal_file import JournalFile
from fleetctl.agent.restart import Restarter, RestartFailed
from fleetctl.agent.systemd import SystemctlMissing
from fleetctl.agent.walk import PathRefused, Place, resolved
from fleetctl.transaction.image import (
    ABSENT,
    Absent,
    DirectoryBefore,
    FileBefore,
    FileImage,
    UnitBefore,
)
from fleetctl.transaction.journal import Begun, Change, Done
from fleetctl.transaction.outcome import ProvenRestart
from fleetctl.transaction.step import (
    MakeDirectory,
    ReloadUnits,
    RemoveFile,
    RestartUnit,
    Step,
    WriteFile,
)

STOPPING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Stopped(Exception):
    """A step must not be performed any more."""


FAILURES = (
    OSError,
    ChangedMeanwhile,
    PathRefused,
    RestartFailed,
    Stopped,
    SystemctlMissing,
)


class StopSignals:
    """Signals that ask us to end: `Stopped` while steps are performed, ignored during an undo.

    A handler ignores them, not SIG_IGN, which a service that we start would inherit.
    """

    def __init__(self) -> None:
        self._raises = False
        self._before: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> StopSignals:
        """Take the signals over."""
        self._before = [(each, signal.signal(each, self._arrived)) for each in STOPPING_SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for each, handler in self._before:
            signal.signal(each, handler)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise `Stopped` in this block when a signal arrives."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if self._raises:
            self._raises = False
            raise Stopped(f"the agent was told to end ({signal.Signals(number).name})")


class Performer:
    """Performs the changes of one transaction.

    Attributes:
        current: the step that is being performed; None before the first.
    """

    def __init__(
        self, edges: Edges, file: JournalFile, lease_id: str, contents: Mapping[str, bytes]
    ) -> None:
        self.current: Step | None = None
        self._edges = edges
        self._file = file
        self._lease_id = lease_id
        self._contents = contents

    def run(self, changes: Sequence[Change]) -> tuple[ProvenRestart, ...]:
        """Perform every change in order.

        Raises:
            One of FAILURES; what was begun is in the journal.
        """
        restarts: list[ProvenRestart] = []
        for index, change in enumerate(changes):
            self.current = change.step
            self.checkpoint()
            self._check_unchanged(change)
            self._file.append(Begun(index))
            restarts += self._perform(change)
            self._file.append(Done(index))
        return tuple(restarts)

    def checkpoint(self) -> None:
        """Stop where the lease has run out: the dead-man waits for us."""
        record = self._edges.leases.get(self._lease_id)
        if record is None or self._edges.leases.remaining_s(record) <= 0:
            raise Stopped("the lease expired while the change was being applied")

    def _check_unchanged(self, change: Change) -> None:
        """Look once more: between the capture and now somebody may have been at work."""
        before = change.before
        if not isinstance(before, FileBefore):
            return
        try:
            with resolved(before.path, follow=False) as place:
                seen = look(place)
        except FileNotFoundError:
            seen = ABSENT
        found = seen.image if isinstance(seen, Look) else ABSENT
        if found != before.image:
            raise Stopped(f"{before.path} was changed by somebody else in the meantime")

    def _perform(self, change: Change) -> list[ProvenRestart]:
        step, before = change.step, change.before
        if isinstance(step, RestartUnit) and isinstance(before, UnitBefore):
            restarter = Restarter(self._edges.systemctl, self._edges.clock, self.checkpoint)
            proven = restarter.restart(step)
            restarter.start_dependents(step.unit, before.stopped_with)
            return [proven]
        if isinstance(step, ReloadUnits):
            self._reload()
        elif isinstance(step, MakeDirectory) and isinstance(before, DirectoryBefore):
            _make_directory(step, before)
        elif isinstance(step, (WriteFile, RemoveFile)) and isinstance(before, FileBefore):
            self._change_file(step, before)
        return []

    def _reload(self) -> None:
        said = self._edges.systemctl.run("daemon-reload")
        if said.exit_code != 0:
            raise Stopped(f"systemctl daemon-reload: {said.errors or said.output}")

    def _change_file(self, step: WriteFile | RemoveFile, before: FileBefore) -> None:
        with resolved(before.path, follow=False) as place:
            if isinstance(step, WriteFile):
                self._write(step, before, place)
            elif isinstance(before.image, FileImage):
                remove_expected(place, before.temp, before.image.sha256)
        bytecode.clear(before, step.bytecode_prefix)

    def _write(self, step: WriteFile, before: FileBefore, place: Place) -> None:
        content = self._contents[step.content_sha256]
        if isinstance(before.image, Absent):
            mode = NEW_FILE_MODE if step.mode is None else step.mode
            finish = partial(set_new, mode=mode, mtime_s=before.mtime_s)
            replace(place, before.temp, content, finish, free=True)
            return
        finish = partial(set_metadata, image=_successor(step, before.image, before.mtime_s))
        sha256 = before.image.sha256
        replace(place, before.temp, content, finish, free=False, expected_sha256=sha256)


def _successor(step: WriteFile, image: FileImage, mtime_s: int) -> FileImage:
    """Return the old file's owner and attributes with the new mode and mtime."""
    return FileImage(
        sha256=step.content_sha256,
        size_bytes=image.size_bytes,
        mode=image.mode if step.mode is None else step.mode,
        uid=image.uid,
        gid=image.gid,
        mtime_ns=mtime_s * 1_000_000_000,
        xattrs=image.xattrs,
        flags=image.flags,
    )


def _make_directory(step: MakeDirectory, before: DirectoryBefore) -> None:
    if before.existed:
        return
    with resolved(before.path, follow=False) as place:
        os.mkdir(place.name, step.mode, dir_fd=place.directory_fd)
        fd = os.open(
            place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place.directory_fd
        )
        try:
            os.fchmod(fd, step.mode)  # whatever the umask
        finally:
            os.close(fd)
        os.fsync(place.directory_fd)
