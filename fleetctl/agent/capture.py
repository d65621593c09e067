"""Before the first change: look at everything a plan touches, and refuse what cannot work."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Collection, Mapping, Sequence

from fleetctl.agent import bytecode, dependents, systemd
from fleetctl.agent.chattr import UNCHANGEABLE, read_flags
from fleetctl.agent.edges import Edges
from fleetctl.agent.files import READ_FLAGS, Look, look
from fleetctl.agent.mounts import is_mount_point, mount_of
from fleetctl.agent.walk import PathRefused, Place, is_there, is_within, resolved
from fleetctl.errors import InputError
from fleetctl.transaction.failure import Drifted, with_facts
from fleetctl.transaction.image import (
    ABSENT,
    Absent,
    Before,
    DirectoryBefore,
    FileBefore,
    Mount,
    NothingBefore,
    UnitBefore,
)
from fleetctl.transaction.journal import Change
from fleetctl.transaction.step import (
    Expected,
    LendDirectory,
    MakeDirectory,
    ReloadUnits,
    RemoveFile,
    RestartUnit,
    Step,
    WriteFile,
)

# systemd would read it along with our drop-in, and nothing could make it forget that again
UNREAD = (
    "its unit file or a drop-in was changed and systemd has not read it yet; "
    "`systemctl daemon-reload` and a restart, or take the edit back"
)
_ON_DISK = (WriteFile, RemoveFile, MakeDirectory, LendDirectory)


class Refused(InputError):
    """A step that this host will not perform; nothing was changed."""


def capture(
    edges: Edges,
    steps: Sequence[Step],
    within: Sequence[str],
    *,
    lent: Collection[str] = (),
    units: Mapping[str, UnitBefore] = MappingProxyType({}),
) -> tuple[Change, ...]:
    """Return every step with what it finds; contents are stored as objects, not yet synced.

    Args:
        edges: the host.
        steps: of the plan.
        within: directories that no step may leave.
        lent: directories that the change before this one had lent to the service.
        units: as the change before this one had found them; it leaves them to this one.

    Raises:
        Drifted: files are not what the steps expect; all of them are named.
        Refused: a step cannot be performed here.
    """
    _refuse_repeated_paths(steps)
    roots = tuple(os.path.realpath(root) for root in within)
    reloads = any(isinstance(s, ReloadUnits) for s in steps)
    camera = _Camera(edges, roots, reloads, lent, units)
    changes = tuple(Change(step, camera.before(step)) for step in steps)
    if camera.drifted:
        raise with_facts(
            Drifted(
                "the host is no longer what the plan was made for",
                why="; ".join(camera.drifted.values()),
                next_step="plan again",
            ),
            paths=tuple(camera.drifted),
        )
    return changes


def _refuse_repeated_paths(steps: Sequence[Step]) -> None:
    paths = [s.path for s in steps if isinstance(s, _ON_DISK)]
    for path in paths:
        if paths.count(path) > 1:
            raise _refused(path, "the plan names it twice")


def _refused(what: str, why: str) -> Refused:
    return Refused(
        f"cannot change {what}", why=why, next_step="nothing was changed; correct it and plan again"
    )


@dataclass
class _Camera:
    """Takes the before-images of one plan."""

    edges: Edges
    roots: tuple[str, ...]
    reloads: bool
    lent: Collection[str]
    units: Mapping[str, UnitBefore]
    drifted: dict[str, str] = field(default_factory=dict)
    made: dict[str, DirectoryBefore] = field(default_factory=dict)

    def before(self, step: Step) -> Before:
        if isinstance(step, ReloadUnits):
            return NothingBefore()
        if isinstance(step, RestartUnit):
            return self._unit(step)
        try:
            return self._on_disk(step)
        except PathRefused as error:
            raise _refused(step.path, str(error)) from error
        except OSError as error:
            raise _refused(step.path, error.strerror or str(error)) from error

    def _on_disk(self, step: WriteFile | RemoveFile | MakeDirectory | LendDirectory) -> Before:
        parent, _, name = step.path.rpartition("/")
        if isinstance(step, LendDirectory):
            return self._not_there(step)
        if parent in self.made:  # by an earlier step; there is nothing to look at yet
            return self._in_new_directory(step, self.made[parent], name)
        with resolved(step.path) as place:
            self._refuse_outside(place.path)
            _refuse_unwritable(place)
            if isinstance(step, MakeDirectory):
                return self._directory(step, place)
            return self._file(step, place)

    def _not_there(self, step: LendDirectory) -> DirectoryBefore:
        with resolved(step.path) as place:
            self._refuse_outside(place.path)
            if is_there(place.path) and place.path not in self.lent:
                raise PathRefused("it is there already; a run that was not undone may have left it")
            return DirectoryBefore(place.path, existed=False, mount=mount_of(place.directory_fd))

    def _in_new_directory(
        self, step: WriteFile | RemoveFile | MakeDirectory, above: DirectoryBefore, name: str
    ) -> Before:
        path = f"{above.path}/{name}"
        if isinstance(step, MakeDirectory):
            self.made[step.path] = DirectoryBefore(path, existed=False, mount=above.mount)
            return self.made[step.path]
        self._compare(step, ABSENT)
        return self._file_before(step, path, ABSENT, above.mount)

    def _refuse_outside(self, path: str) -> None:
        if self.roots and not is_within(path, self.roots):
            raise PathRefused(f"it leads to {path}, outside of {' and '.join(self.roots)}")
        if is_within(f"{path}/", (os.path.realpath(self.edges.state.path),)):
            raise PathRefused("it is fleetctl's own")

    def _directory(self, step: MakeDirectory, place: Place) -> DirectoryBefore:
        try:
            found = os.stat(place.name, dir_fd=place.directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            self.made[step.path] = DirectoryBefore(
                place.path, existed=False, mount=mount_of(place.directory_fd)
            )
            return self.made[step.path]
        if not stat.S_ISDIR(found.st_mode):
            raise PathRefused("something that is no directory has this name")
        return DirectoryBefore(place.path, existed=True)

    def _file(self, step: WriteFile | RemoveFile, place: Place) -> FileBefore:
        if isinstance(step, RemoveFile) and place.path != _real_parent(step.path):
            raise PathRefused("it is a symlink; name the file it leads to")
        seen = look(place)
        self._compare(step, seen)
        if isinstance(seen, Look):
            if is_mount_point(place):
                raise PathRefused("something is mounted on it, and cannot be replaced")
            _refuse_immutable(place)
            _refuse_lost_owner(seen)
            self.edges.state.put_object(seen.content)
        return self._file_before(step, place.path, seen, mount_of(place.directory_fd))

    def _file_before(
        self, step: WriteFile | RemoveFile, path: str, seen: Look | Absent, mount: Mount | None
    ) -> FileBefore:
        folders = bytecode.real_directories((step.path, path), step.bytecode_prefix)
        cached = bytecode.capture(step.path, folders)
        for _, cache in cached:
            self.edges.state.put_object(cache.content)
        claimed = {bytecode.source_mtime_s(cache.content) for _, cache in cached}
        own = {seen.image.mtime_ns // 1_000_000_000} if isinstance(seen, Look) else set()
        taken = own | {mtime_s for mtime_s in claimed if mtime_s is not None}
        return FileBefore(
            asked=step.path,
            path=path,
            image=seen.image if isinstance(seen, Look) else ABSENT,
            temp=f".fleetctl-{secrets.token_hex(16)}",
            mtime_s=bytecode.unused_mtime_s(self.edges.clock.now_s(), taken),
            bytecode=tuple((file, cache.image) for file, cache in cached),
            missing_directories=bytecode.missing_directories(folders),
            bytecode_directories=tuple(folders),
            mount=mount,
        )

    def _compare(self, step: WriteFile | RemoveFile, seen: Look | Absent) -> None:
        found: Expected = seen.image.sha256 if isinstance(seen, Look) else ABSENT
        if found == step.expect:
            return
        expected, actual = _words(step.expect), _words(found)
        self.drifted[step.path] = f"{step.path}: expected {expected}, found {actual}"

    def _unit(self, step: RestartUnit) -> Before:
        try:
            properties = self.edges.systemctl.show(step.unit)
        except systemd.SystemctlMissing as error:
            raise _refused(step.unit, str(error)) from error
        load_state = properties.get("LoadState", "")
        if load_state == "masked" or (load_state == "not-found" and not self.reloads):
            raise _refused(step.unit, f"the unit is {load_state}")
        if step.unit in self.units:
            return self.units[step.unit]
        if self.reloads and properties.get("NeedDaemonReload") == "yes":
            raise _refused(step.unit, UNREAD)
        return self._unit_before(step.unit, systemd.unit_before(properties))

    def _unit_before(self, unit: str, before: UnitBefore) -> UnitBefore:
        """Look at the units around it: a stop takes some along, a start ends others."""
        systemctl = self.edges.systemctl
        if before.active:
            along = dependents.stopped_with(systemctl, unit)
            unread = [u for u in along if self.reloads and dependents.is_unread(systemctl, u)]
            if unread:
                raise _refused(unit, f"{unread[0]}, which stops with it: {UNREAD}")
            return replace(before, stopped_with=along)
        ended = dependents.ended_by_start(systemctl, unit)
        if ended:
            raise _refused(unit, f"its start would end {' and '.join(ended)} (Conflicts=)")
        return before


def _real_parent(path: str) -> str:
    """Return a path with the links in its directories followed, but not its own."""
    parent, _, name = path.rpartition("/")
    return f"{os.path.realpath(parent or '/').rstrip('/')}/{name}"


def _words(expected: Expected) -> str:
    return "no file" if isinstance(expected, Absent) else f"sha256 {expected[:12]}…"


def _refuse_unwritable(place: Place) -> None:
    if os.fstatvfs(place.directory_fd).f_flag & os.ST_RDONLY:
        raise PathRefused(f"{place.directory} is on a read-only file system")
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.directory_fd):
        raise PathRefused(f"{place.directory} may not be written to")


def _refuse_immutable(place: Place) -> None:
    for name in (place.name, "."):
        fd = os.open(name, READ_FLAGS, dir_fd=place.directory_fd)
        try:
            flags = read_flags(fd) or 0
        finally:
            os.close(fd)
        if flags & UNCHANGEABLE:
            raise PathRefused(f"{place.path} or its directory is immutable (chattr)")


def _refuse_lost_owner(seen: Look) -> None:
    if os.geteuid() not in {0, seen.image.uid}:
        raise PathRefused(f"it belongs to user {seen.image.uid}, which only root could keep so")
