"""Before-images: what a step found, exactly enough to bring it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Absent:
    """Nothing is there."""


ABSENT = Absent()


@dataclass(frozen=True)
class FileImage:
    """A regular file; its bytes lie in the host's object store under `sha256`.

    Attributes:
        sha256: of the content, lower-case hex.
        size_bytes: length of the content.
        mode: permission bits, such as 0o644.
        uid: owner.
        gid: group.
        mtime_ns: modification time since the epoch.
        xattrs: (name, value as hex), sorted; POSIX ACLs and SELinux labels are among them.
        flags: those of `chattr` that a copy can take, such as no-atime; None where the file system
            has none.
    """

    sha256: str
    size_bytes: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    xattrs: tuple[tuple[str, str], ...] = ()
    flags: int | None = None


@dataclass(frozen=True)
class Mount:
    """Where a file system is mounted: what tells it from another one at or above the same path.

    Attributes:
        point: real path of the mount point.
        root: what of the file system is mounted there; `/` but for bind mounts.
        kind: of file system, such as `ext4`.
    """

    point: str
    root: str
    kind: str


@dataclass(frozen=True)
class FileBefore:
    """What `WriteFile` or `RemoveFile` found.

    Attributes:
        asked: the step's path.
        path: the real path acted on; differs from `asked` behind a symlink.
        image: the file, or that there was none.
        temp: name, in the same directory, of the temporary file of act and undo:
            unpredictable, and known to the journal before it exists.
        mtime_s: whole seconds given to the new file, different from those of the old one
            and of every bytecode file, so that no interpreter takes old bytecode for current.
        bytecode: bytecode files of the module that were there, with their paths.
        missing_directories: bytecode directories that were not there, innermost first.
        bytecode_directories: real paths of the directories that hold bytecode of the module.
        mount: what the file's directory lies on; None where nobody could tell.
    """

    asked: str
    path: str
    image: FileImage | Absent
    temp: str
    mtime_s: int
    bytecode: tuple[tuple[str, FileImage], ...] = ()
    missing_directories: tuple[str, ...] = ()
    bytecode_directories: tuple[str, ...] = ()
    mount: Mount | None = None


@dataclass(frozen=True)
class DirectoryBefore:
    """What `MakeDirectory` or `LendDirectory` found.

    Attributes:
        path: the real path.
        existed: the directory was there already, so undo leaves it alone.
        mount: what the directory above it lies on; None where nobody could tell.
    """

    path: str
    existed: bool
    mount: Mount | None = None


@dataclass(frozen=True)
class UnitBefore:
    """What `RestartUnit` found.

    Attributes:
        active: the unit ran, or was on its way to.
        state: ActiveState and SubState as found, such as `active/running`.
        enabled: UnitFileState as found, such as `enabled`.
        invocation: identity of the running instance; empty when there was none.
        stopped_with: units that ran and that systemd stops along with this one, nearest first.
    """

    active: bool
    state: str
    enabled: str
    invocation: str
    stopped_with: tuple[str, ...] = ()


@dataclass(frozen=True)
class NothingBefore:
    """`ReloadUnits` finds nothing to keep."""


Before = Union[FileBefore, DirectoryBefore, UnitBefore, NothingBefore]
