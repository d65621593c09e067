"""The kinds of change, each beside its undo and its one-line description.

A step is data: the plan shows it, the journal keeps it, the agent performs it. A step names the
state it expects; the agent checks again before it acts and stops where reality differs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Union

from fleetctl.transaction.image import (
    Absent,
    Before,
    DirectoryBefore,
    FileBefore,
    Mount,
    NothingBefore,
    UnitBefore,
)

Expected = Union[str, Absent]
"""The sha256 (hex) the plan saw, or `ABSENT`."""

SHA256 = re.compile(r"[0-9a-f]{64}")
UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,250}\.(service|socket|target|timer|path|mount|slice)")
DEFAULT_SOAK_S = 2.0
DEFAULT_STOP_DEADLINE_S = 90.0


class BadStep(ValueError):
    """A step that no host should be asked to perform."""


@dataclass(frozen=True)
class WriteFile:
    """Put a whole file in place, atomically.

    Attributes:
        path: absolute; a symlink is written through to its target, never replaced.
        content_sha256: of the new content, which travels beside the plan.
        mode: permission bits; None keeps those of the file, 0644 for a new one.
        expect: what must be there now.
        bytecode_prefix: the service's PYTHONPYCACHEPREFIX, where it has one.
    """

    path: str
    content_sha256: str
    mode: int | None
    expect: Expected
    bytecode_prefix: str | None = None

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_sha256(self.content_sha256)
        _check_mode(self.mode)
        _check_expected(self.expect)


@dataclass(frozen=True)
class RemoveFile:
    """Remove a regular file; a symlink is refused.

    Attributes:
        path: absolute.
        expect: what must be there now.
        bytecode_prefix: the service's PYTHONPYCACHEPREFIX, where it has one.
    """

    path: str
    expect: str
    bytecode_prefix: str | None = None

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_sha256(self.expect)


@dataclass(frozen=True)
class MakeDirectory:
    """Make one directory, not its parents; one that exists is left as it is.

    Attributes:
        path: absolute.
        mode: permission bits of a new directory.
    """

    path: str
    mode: int = 0o755

    def __post_init__(self) -> None:
        _check_path(self.path)
        _check_mode(self.mode)


@dataclass(frozen=True)
class LendDirectory:
    """Let the service make a directory and fill it, such as a cache of compiled kernels.

    Nothing may be there. The undo removes whatever the service put into it, after it has ended.

    Attributes:
        path: absolute; its parent exists.
    """

    path: str

    def __post_init__(self) -> None:
        _check_path(self.path)


@dataclass(frozen=True)
class ReloadUnits:
    """Let systemd read its unit files again (`systemctl daemon-reload`)."""


@dataclass(frozen=True)
class RestartUnit:
    """Stop a unit cleanly, start it, and see that it stays up.

    Attributes:
        unit: full name, such as `sglang-dsv4-decode.service`.
        soak_s: how long it must run, without a restart of its own, to count as started.
        stop_deadline_s: how long its processes may take to end.
        gpu_idle_mib: memory in use on each GPU must fall to this between stop and start; None
            does not ask.
    """

    unit: str
    soak_s: float = DEFAULT_SOAK_S
    stop_deadline_s: float = DEFAULT_STOP_DEADLINE_S
    gpu_idle_mib: int | None = None

    def __post_init__(self) -> None:
        check_unit(self.unit)
        if not (0 <= self.soak_s <= 3600 and 0 < self.stop_deadline_s <= 3600):
            raise BadStep(f"soak and stop deadline of {self.unit} must lie within an hour")


Step = Union[WriteFile, RemoveFile, MakeDirectory, LendDirectory, ReloadUnits, RestartUnit]


@dataclass(frozen=True)
class RestoreFile:
    """Bring a file back to its before-image.

    Attributes:
        before: what was found.
        ours: what the step left there; anything else is somebody's work: a conflict.
        bytecode_prefix: as in the step.
    """

    before: FileBefore
    ours: Expected
    bytecode_prefix: str | None = None


@dataclass(frozen=True)
class RemoveDirectory:
    """Remove a directory that a step made, if nobody put anything into it."""

    path: str
    mount: Mount | None = None


@dataclass(frozen=True)
class RemoveLent:
    """Remove a directory that the service made, with everything in it."""

    path: str
    mount: Mount | None = None


@dataclass(frozen=True)
class RestoreUnit:
    """Bring a unit back to running or not running, on the files of before."""

    step: RestartUnit
    before: UnitBefore


Undo = Union[RestoreFile, RemoveDirectory, RemoveLent, ReloadUnits, RestoreUnit]


def undo(step: Step, before: Before) -> tuple[Undo, ...]:
    """Return what brings back the state that `step` found; empty when nothing needs to.

    Every undo is absolute (it does not ask what happened) and may be repeated.
    """
    if isinstance(step, WriteFile) and isinstance(before, FileBefore):
        return (RestoreFile(before, step.content_sha256, step.bytecode_prefix),)
    if isinstance(step, RemoveFile) and isinstance(before, FileBefore):
        return (RestoreFile(before, Absent(), step.bytecode_prefix),)
    if isinstance(step, MakeDirectory) and isinstance(before, DirectoryBefore):
        return () if before.existed else (RemoveDirectory(before.path, before.mount),)
    if isinstance(step, LendDirectory) and isinstance(before, DirectoryBefore):
        return (RemoveLent(before.path, before.mount),)
    if isinstance(step, ReloadUnits) and isinstance(before, NothingBefore):
        return (step,)
    if isinstance(step, RestartUnit) and isinstance(before, UnitBefore):
        return (RestoreUnit(step, before),)
    raise BadStep(f"{type(before).__name__} is no before-image of {type(step).__name__}")


def describe(step: Step) -> str:
    """Return one line for people."""
    if isinstance(step, WriteFile):
        verb = "create" if isinstance(step.expect, Absent) else "replace"
        return f"{verb} {step.path}"
    if isinstance(step, RemoveFile):
        return f"remove {step.path}"
    if isinstance(step, MakeDirectory):
        return f"make directory {step.path}"
    if isinstance(step, LendDirectory):
        return f"lend directory {step.path} to the service"
    if isinstance(step, ReloadUnits):
        return "reload systemd's unit files"
    return f"restart {step.unit}"


def check_unit(unit: str) -> None:
    """Refuse what is not the full name of a systemd unit.

    Raises:
        BadStep: it is not.
    """
    if not UNIT.fullmatch(unit) or unit.startswith("-"):
        raise BadStep(f"not the full name of a systemd unit: {unit!r}")


def _check_path(path: str) -> None:
    parts = path.split("/")[1:]
    if not path.startswith("/") or "\0" in path or any(p in {"", ".", ".."} for p in parts):
        raise BadStep(f"not an absolute, normal path: {path!r}")


def _check_sha256(digest: str) -> None:
    if not SHA256.fullmatch(digest):
        raise BadStep(f"not a sha256 in hex: {digest!r}")


def _check_mode(mode: int | None) -> None:
    if mode is not None and not 0 <= mode <= 0o7777:
        raise BadStep(f"not permission bits: {mode!r}")


def _check_expected(expected: Expected) -> None:
    if not isinstance(expected, Absent):
        _check_sha256(expected)
