"""How a command line starts something: read from the left, word by word."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from fleetctl.environment.shell.dataflow import HOLE, Means
from fleetctl.environment.shell.tree import Substitution
from fleetctl.environment.shell.words import Field

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL | re.ASCII)


class Payload(enum.Enum):
    """What a command line ends in."""

    SERVER = "server"
    SHELL = "shell text"
    SCRIPT = "shell script"
    POSSIBLE = "possible server"
    STRING = "string for another program"


@dataclass(frozen=True)
class Attached:
    """NAME=value in the command itself, or a bare NAME that a container copies (`text` None)."""

    name: str
    text: str | None
    field: Field
    means: Means
    option: Field | None = None


@dataclass(frozen=True)
class CommandLine:
    """How a server is started.

    Attributes:
        payload: what is started.
        text: the script in a string, or the path of a script.
        operands: what the script gets as positional parameters.
        cleared: nothing of the shell's environment reaches it.
        removed: names that `env -u` takes away.
        attached: assignments in the command, in order.
        loose: an expansion stands where more assignments could hide.
        filed: a file of variables is read, which assignments in the command override.
        barrier: why nothing that the shell sets arrives; "" where it does.
        crossable: an assignment in the command itself arrives nevertheless.
        altered: names that a program on the way may set itself.
        imaged: it starts in a container, whose image has variables of its own.
        prefixed: an expansion that can't be told stands before the program: it may be `env A=1`.
        shell_options: letters of the options of the shell that reads the script, None where
            the script's first line has them.
        kept: names that pass the barrier as the shell has them.
        argument_places: offsets at which one more assignment may be inserted as an argument.
        argument_form: `%s`, or `-e %s` for a container.
    """

    payload: Payload
    text: Field | None = None
    operands: tuple[str, ...] = ()
    cleared: bool = False
    removed: frozenset[str] = frozenset()
    attached: tuple[Attached, ...] = ()
    loose: bool = False
    filed: bool = False
    barrier: str = ""
    crossable: bool = False
    kept: frozenset[str] = frozenset()
    altered: frozenset[str] = frozenset()
    imaged: bool = False
    prefixed: bool = False
    shell_options: str | None = None
    argument_places: tuple[int, ...] = ()
    argument_form: str = "%s"


@dataclass
class Reader:
    """A command line read so far.

    Attributes:
        command_at: the word at which the next command begins.
        executed: `exec` replaces the shell.
        container: the command runs in a container.
    """

    fields: tuple[Field, ...]
    payload: Payload | None = None
    text: Field | None = None
    operands: tuple[str, ...] = ()
    cleared: bool = False
    removed: set[str] = field(default_factory=set)
    attached: list[Attached] = field(default_factory=list)
    loose: bool = False
    filed: bool = False
    barrier: str = ""
    crossable: bool = False
    kept: set[str] = field(default_factory=set)
    altered: set[str] = field(default_factory=set)
    imaged: bool = False
    prefixed: bool = False
    shell_options: str | None = None
    argument_places: tuple[int, ...] = ()
    argument_form: str = "%s"
    command_at: int = 0
    executed: bool = False
    container: bool = False

    def result(self, payload: Payload) -> CommandLine:
        """Return what is known when the payload is reached."""
        return CommandLine(
            payload=payload,
            text=self.text,
            operands=self.operands,
            cleared=self.cleared,
            removed=frozenset(self.removed),
            attached=tuple(self.attached),
            loose=self.loose,
            filed=self.filed,
            barrier=self.barrier,
            crossable=self.crossable,
            kept=frozenset(self.kept),
            altered=frozenset(self.altered),
            imaged=self.imaged,
            prefixed=self.prefixed,
            shell_options=self.shell_options,
            argument_places=self.argument_places,
            argument_form=self.argument_form,
        )

    def at(self, position: int) -> str:
        """Return the text of a word, "" behind the last one."""
        return self.fields[position].text if position < len(self.fields) else ""

    def attach(
        self, position: int, means: Means, *, option: int | None = None, lead: str = ""
    ) -> bool:
        """Note NAME=value at a position; say whether there was one."""
        item = self.fields[position]
        found = ASSIGNMENT.fullmatch(item.text.removeprefix(lead))
        if found is None:
            return False
        chosen = None if option is None else self.fields[option]
        self.attached.append(Attached(found[1], found[2], item, means, chosen))
        return True

    def run_script(self, position: int) -> None:
        """The word is a shell script; the rest are its arguments."""
        self.payload = Payload.SCRIPT
        self.text = self.fields[position]
        self.operands = tuple(f.text for f in self.fields[position + 1 :])

    def insert_before(self, position: int, form: str = "%s") -> None:
        """One more assignment may stand before a word."""
        if position < len(self.fields):
            self.argument_places += (self.fields[position].word.start,)
            self.argument_form = form

    def note_expansion(self, position: int) -> None:
        """A word may be any number of words; behind an option it is the option's value."""
        valued = position > 0 and self.option(position - 1) != ""
        if self.several(position) and not valued and not self.runs(position):
            self.prefixed = True

    def several(self, position: int) -> bool:
        """Say whether a word that can't be told may be any number of words."""
        parts = self.fields[position].word.parts
        output = len(parts) == 1 and isinstance(parts[0], Substitution)
        return self.fields[position].rest or (output and self.at(position) == HOLE)

    def runs(self, position: int) -> bool:
        """Say whether a word that can't be told is the program: `"$PY" -m …`, `$(…) serve`."""
        following = self.at(position + 1)
        return following.startswith("-") or following == "serve" or following.endswith(".py")

    def option(self, position: int) -> str:
        """Return the word where it is an option, else ""."""
        text = self.at(position)
        return text if text.startswith("-") and len(text) > 1 else ""

    def block(self, why: str, *, crossable: bool = False) -> None:
        """From here on nothing of the environment before is there."""
        self.note_cleared()
        if not self.barrier or self.crossable:
            self.barrier, self.crossable = why, crossable

    def cross(self) -> None:
        """A program starts its command with variables from its own arguments."""
        if self.crossable:
            self.barrier, self.crossable = "", False

    def note_loose(self) -> None:
        """An expansion may hold assignments, which beat those before it."""
        self.loose = True
        self.attached.clear()

    def note_cleared(self) -> None:
        """The command starts with an empty environment."""
        self.cleared = True
        self.attached.clear()
        self.removed.clear()
        self.kept.clear()
        self.argument_places = ()


Step: TypeAlias = Callable[[Reader, int], int]
"""Reads one program and its own arguments; returns where the command it starts begins."""
