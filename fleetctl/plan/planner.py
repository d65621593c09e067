"""Desired state x observed state -> Plan: every step with the precondition it assumes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fleetctl.errors import DriftError
from fleetctl.plan.desired import Desired, FileGoal
from fleetctl.transaction.image import ABSENT
from fleetctl.transaction.snapshot import PathState
from fleetctl.transaction.step import (
    DEFAULT_STOP_DEADLINE_S,
    LendDirectory,
    MakeDirectory,
    ReloadUnits,
    RemoveFile,
    RestartUnit,
    Step,
    WriteFile,
)

_UNIT_FOLDERS = ("/etc/systemd/", "/usr/lib/systemd/", "/lib/systemd/", "/run/systemd/")


@dataclass(frozen=True)
class Change:
    """One file that will differ; None stands for "no file"."""

    path: str
    before: bytes | None
    after: bytes | None
    why: str


@dataclass(frozen=True)
class Plan:
    """What will happen on one host, in order.

    Attributes:
        blobs: sha256 -> content of every file to be written.
        notes: what can't be predicted.
    """

    host: str
    steps: tuple[Step, ...]
    changes: tuple[Change, ...]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether every file already is as desired."""
        return not self.changes


def plan_host(
    host: str,
    desired: Desired,
    observed: Mapping[str, PathState],
    *,
    soak_s: float,
    stop_s: float = DEFAULT_STOP_DEADLINE_S,
    restart_always: bool = False,
    gpu_idle_mib: int | None = None,
) -> Plan:
    """Return the steps from what a host holds to what it should hold.

    Files first, directories they need before them, then systemd's files are read again if one
    changed, then one restart. `restart_always` asks for the restart although nothing differs
    (a fresh boot of the service per run).

    Raises:
        DriftError: a file to be changed is something else than a regular file.
    """
    changes = [change for goal in desired.files if (change := _change(goal, observed))]
    prefixes = {goal.path: goal.bytecode_prefix for goal in desired.files}
    steps: list[Step] = list(_directories(changes, observed))
    steps += [LendDirectory(path) for path in desired.lent]
    steps += [_step(change, observed[change.path], prefixes[change.path]) for change in changes]
    if any(change.path.startswith(_UNIT_FOLDERS) for change in changes):
        steps.append(ReloadUnits())
    if steps or restart_always:
        steps.append(RestartUnit(desired.unit, soak_s, stop_s, gpu_idle_mib))
    blobs = {sha256(c.after): c.after for c in changes if c.after is not None}
    return Plan(host, tuple(steps), tuple(changes), blobs, desired.notes)


def sha256(content: bytes) -> str:
    """Return the digest by which contents travel, 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def content_of(state: PathState) -> bytes | None:
    """Return the bytes a path holds, or None where there is nothing.

    Raises:
        DriftError: it is neither a readable file nor absent.
    """
    if state.kind == "absent":
        return None
    if state.kind != "file" or state.content is None:
        raise DriftError(
            f"{state.path} is not a file that can be edited",
            why=state.problem or f"it is of kind {state.kind}",
            next_step="look at it on the host; nothing was applied",
        )
    return state.content


def _change(goal: FileGoal, observed: Mapping[str, PathState]) -> Change | None:
    before = content_of(observed[goal.path])
    if before == goal.content:
        return None
    return Change(goal.path, before, goal.content, goal.why)


def _directories(
    changes: Iterable[Change], observed: Mapping[str, PathState]
) -> list[MakeDirectory]:
    """Return the missing parents of new files, outermost first, each once."""
    needed: dict[str, None] = {}
    for change in changes:
        if change.after is None:
            continue
        for parent in reversed(PurePosixPath(change.path).parents):
            state = observed.get(str(parent))
            if state is not None and state.kind == "absent":
                needed[str(parent)] = None
    return [MakeDirectory(path) for path in needed]


def parents_of(path: str) -> list[str]:
    """Return the directories above a path, outermost first, without the root."""
    return [str(parent) for parent in reversed(PurePosixPath(path).parents)][1:]


def _step(change: Change, state: PathState, prefix: str | None) -> Step:
    if change.after is None:
        return RemoveFile(change.path, expect=state.sha256 or "", bytecode_prefix=prefix)
    expect = ABSENT if change.before is None else sha256(change.before)
    return WriteFile(change.path, sha256(change.after), None, expect, bytecode_prefix=prefix)
