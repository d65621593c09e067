"""What an analysis notes: where it reads, and which servers it saw start."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.environment.quoting import Inside
from fleetctl.environment.shell.command_line import Attached, CommandLine
from fleetctl.environment.shell.dataflow import (
    HOLE,
    NO_VARIABLE,
    Means,
    State,
    Variable,
    Write,
)
from fleetctl.environment.shell.tree import Script, Simple, Statement


@dataclass(frozen=True)
class Reading:
    """The text that is being interpreted.

    Attributes:
        script: its nodes.
        path: "" for the script that may be edited.
        inside: what surrounds it: nothing, or the quotes of a string of the script.
        base: its offset in the script.
        first_line: the line it begins on.
    """

    script: Script
    path: str
    inside: Inside
    base: int = 0
    first_line: int = 1

    def line_of(self, offset: int) -> int:
        """Return the line of a position in this text, counted in its own file."""
        return self.script.line_of(offset - self.base) + self.first_line - 1

    def raw(self, start: int, end: int) -> bytes:
        """Return the bytes as they stand there."""
        return self.script.content[start - self.base : end - self.base]


@dataclass(frozen=True)
class Place:
    """A statement on the way to a launch.

    Attributes:
        first: whenever the statement around it runs, this one runs first.
        inside: what surrounds the text it stands in.
    """

    statement: Statement
    first: bool
    inside: Inside


@dataclass(frozen=True)
class Observation:
    """One start of a server on one way through the script.

    Attributes:
        command: the command that starts it.
        line: how the command starts it.
        outer: the outermost of the commands whose strings it lies in; `line` where there are none.
        outer_command: the command of `outer`.
        outer_reading: the text it stands in.
        state: the variables at that moment, prefixes included.
        places: statements around it, outermost first; None stands for a function call between.
        reading: the text it stands in.
        handed: the server's name came in as an argument of a function call.
        background: it runs beside what follows.
        hidden: strings whose text can't be told, which it may run.
        attached: the assignments of `line` as writes.
    """

    command: Simple
    line: CommandLine
    outer: CommandLine
    outer_command: Simple
    outer_reading: Reading
    state: State
    places: tuple[Place | None, ...]
    reading: Reading
    handed: bool
    background: bool
    hidden: tuple[str, ...]
    attached: tuple[tuple[Attached, Write], ...]

    @property
    def unsure(self) -> bool:
        """Say whether a text that nobody sees stands before the server: it may set anything."""
        return bool(self.hidden) or self.line.prefixed or self.outer.prefixed

    def variable(self, name: str) -> Variable:
        """Return what the server sees of a variable."""
        return seen(self.line, self.attached, self.state, name)


def seen(
    line: CommandLine,
    attached: Sequence[tuple[Attached, Write]],
    state: State,
    name: str,
) -> Variable:
    """Return what a command sees of a variable when it is started by `line` in `state`."""
    last = next(((a, w) for a, w in reversed(attached) if a.name == name), None)
    if last is not None and last[0].text is not None:
        return Variable(last[0].text, exported=True, writers=frozenset({last[1]}))
    if last is not None:
        return state.get(name)
    remote = line.barrier if not line.crossable else ""
    if line.loose or line.filed or remote:
        how = "an expansion in the command" if line.loose else remote or "a file of variables"
        unseen = Write(name, Means.UNKNOWN, how, "", 0, 0, HOLE)
        return Variable(HOLE, exported=None, writers=frozenset({unseen}))
    if name in line.altered:
        unseen = Write(name, Means.UNKNOWN, "a program on the way", "", 0, 0, HOLE)
        return Variable(HOLE, exported=None, writers=state.get(name).writers | {unseen})
    if name in line.removed or (line.cleared and name not in line.kept):
        return NO_VARIABLE
    return state.get(name)


class Library(abc.ABC):
    """Other files that the script may source or run, where somebody has them."""

    @abc.abstractmethod
    def find(self, path: str) -> tuple[str, bytes] | None:
        """Return the full path and content of a file that a script names, None where unknown."""

    def has(self, directory: str) -> bool:
        """Say whether something is known to lie in a directory."""
        return False

    def real(self, path: str) -> str | None:
        """Return a file's path with all symbolic links followed, None where it is not known."""
        return None


class NoFiles(Library):
    """Nothing but the script is known."""

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Return None."""
        return None
