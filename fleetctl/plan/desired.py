"""What an arm wants a host to hold, file by file; the rest of what a run touched is as found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FileGoal:
    """One file as it should be.

    Attributes:
        path: absolute path on the host.
        content: its bytes, or None when there should be no file.
        why: which patch or flag asks for it, for people.
        bytecode_prefix: the service's PYTHONPYCACHEPREFIX, where it has one.
    """

    path: str
    content: bytes | None
    why: str
    bytecode_prefix: str | None = None


@dataclass(frozen=True)
class Desired:
    """Everything one arm wants of one host.

    Attributes:
        files: at most one goal per path.
        unit: the service that has to run on them.
        notes: what the plan can't predict, said out loud.
        lent: directories that the service may make and fill, and that go with the undo.
    """

    files: tuple[FileGoal, ...]
    unit: str
    notes: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()


def with_as_found(
    goals: Iterable[FileGoal], as_found: Mapping[str, bytes | None]
) -> tuple[FileGoal, ...]:
    """Return the goals, with every other path a run has touched back as it was found.

    An arm is thus always reached from any other arm, and never keeps a leftover of it.
    """
    wanted = {goal.path: goal for goal in goals}
    rest = [
        FileGoal(path, content, "as found")
        for path, content in as_found.items()
        if path not in wanted
    ]
    return (*wanted.values(), *rest)
