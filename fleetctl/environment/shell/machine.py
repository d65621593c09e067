"""The state of an analysis: the text being read, what was found, and steps on variables."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from fleetctl.environment.quoting import Inside
from fleetctl.environment.shell.build import parse
from fleetctl.environment.shell.command_line import CommandLine
from fleetctl.environment.shell.dataflow import (
    HOLE,
    Means,
    Site,
    State,
    Variable,
    Write,
    is_no_arithmetic,
)
from fleetctl.environment.shell.definitions import functions_in
from fleetctl.environment.shell.observation import Library, Observation, Place, Reading
from fleetctl.environment.shell.parser import Parser, ScriptRejected
from fleetctl.environment.shell.purity import loses_nothing
from fleetctl.environment.shell.scope import MachineScope, is_below
from fleetctl.environment.shell.tree import (
    Arithmetic,
    Assignment,
    DoubleQuoted,
    Function,
    Parameter,
    Part,
    Simple,
    Statement,
    Substitution,
    Word,
    bytes_of,
)
from fleetctl.environment.shell.words import Field, value_of

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MOST_STEPS = 60_000


class TooEntangled(Exception):
    """The analysis gave up: so many ways through the script that it would take too long."""


@dataclass(frozen=True)
class Defined:
    """A function and the text it stands in.

    Attributes:
        sure: whoever reads the text comes by the definition: it stands in no branch or subshell.
    """

    function: Function
    reading: Reading
    sure: bool


@dataclass
class Machine(abc.ABC):
    """An analysis under way."""

    parser: Parser
    library: Library
    reading: Reading
    path: str
    is_sh: bool
    last_pipe: bool = False
    aliases_on: bool = False
    may_be_posix: bool = False
    functions: dict[str, list[Defined]] = field(default_factory=dict)
    exported_functions: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    aliased_at: dict[str, tuple[str, int]] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    asynchronous: set[str] = field(default_factory=set)
    every_text: dict[str, list[str]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    places: list[Place | None] = field(default_factory=list)
    outer: list[tuple[CommandLine, Simple, Reading]] = field(default_factory=list)
    program: str = HOLE
    begun_in: str = HOLE
    written: set[str] = field(default_factory=set)
    background: int = 0
    failures: int = 0
    left_line: tuple[str, int] = ("", 0)
    steps: int = 0

    @abc.abstractmethod
    def run_list(self, body: Sequence[Statement], state: State) -> State | None:
        """Interpret statements in order; None where none of them lets the next one run."""

    @abc.abstractmethod
    def run_sourced(self, body: Sequence[Statement], state: State) -> State | None:
        """Interpret a file in this process."""

    @abc.abstractmethod
    def run_apart(self, body: Sequence[Statement], state: State) -> State | None:
        """Interpret statements in a process of their own; `state` is theirs."""

    @abc.abstractmethod
    def call(self, name: str, arguments: Sequence[Field], state: State) -> State | None:
        """Interpret a call of a function."""

    # ---- scope of words (see words.Scope), for the state at hand

    def step(self) -> None:
        """Count one step.

        Raises:
            TooEntangled: there were too many.
        """
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise TooEntangled

    def scope(self, state: State) -> MachineScope:
        """Return what words need to know."""
        return MachineScope(self, state)

    # ---- other texts

    @contextmanager
    def read(self, reading: Reading) -> Iterator[None]:
        """Interpret another text for a while."""
        before, self.reading = self.reading, reading
        try:
            yield
        finally:
            self.reading = before

    def is_there(self, directory: str) -> bool:
        """Say whether a directory surely exists: something is known to lie in it."""
        known = (self.path, f"{self.begun_in}/")
        return HOLE not in directory and (
            any(is_below(path, directory) for path in known) or self.library.has(directory)
        )

    def open_text(
        self,
        content: bytes,
        path: str,
        *,
        at: int | None = None,
        inside: Inside = Inside.ELSEWHERE,
    ) -> Reading | None:
        """Parse a text that the script runs.

        Args:
            content: the text.
            path: the file it is, or the present one.
            at: where it stands literally in the script, None where it is put together.
            inside: the quotes around it there.
        """
        if at is None or self.reading.inside is not Inside.SCRIPT:
            inside = Inside.ELSEWHERE
        try:
            script = parse(content, self.parser, base=at if at is not None else 0)
        except ScriptRejected:
            return None
        first_line = self.reading.line_of(at) if at is not None else 1
        reading = Reading(script, path, inside, at or 0, first_line)
        self.define_functions(reading)
        return reading

    def define_functions(self, reading: Reading) -> None:
        """Collect the functions that a text defines, wherever it does."""
        plain = [statement.command for statement in reading.script.body]
        for function in functions_in(reading.script.body):
            known = self.functions.setdefault(function.name, [])
            if not any(each.function == function for each in known):
                known.append(Defined(function, reading, any(function is each for each in plain)))

    # ---- writes

    def write(
        self,
        name: str,
        means: Means,
        how: str,
        offset: int,
        text: str | None,
        site: Site | None = None,
    ) -> Write:
        """Return a write at a position of the present text."""
        line = self.reading.line_of(offset)
        if text is not None:
            texts = self.every_text.setdefault(name, [])
            if text not in texts:
                texts.append(text)
        return Write(name, means, how, self.reading.path, line, offset, text, site)

    def assign(
        self, state: State, write: Write, *, append: bool = False, export: bool | None = None
    ) -> None:
        """Give a variable a value; through a reference, give it to the variable referred to."""
        variable = state.get(write.name)
        self.note_number(variable, write)
        if "nameref" not in variable.attributes:
            state.assign(write.name, write, append=append, export=export)
        elif variable.value and HOLE not in variable.value and NAME.fullmatch(variable.value):
            target = replace(write, name=variable.value, site=None)
            state.may_assign(variable.value, target)
        else:
            state.forget("a reference", write.line, write.path)

    def note_number(self, variable: Variable, write: Write) -> None:
        """A text that is no arithmetic ends the line in which an integer variable should get it."""
        if "integer" in variable.attributes and is_no_arithmetic(write.text or ""):
            self.failures += 1

    def computed(self, state: State, name: str, how: str, offset: int, text: str = HOLE) -> None:
        """A builtin gives a variable a value; with an unknown name it may be any variable."""
        if NAME.fullmatch(name):
            self.assign(state, self.write(name, Means.COMPUTED, how, offset, text))
        else:
            self.forget(state, how, offset)

    def computed_array(self, state: State, name: str, how: str, offset: int) -> None:
        """The same for an array, which no child ever sees."""
        self.computed(state, name, how, offset)
        if NAME.fullmatch(name):
            state.mark(name, attributes={"array"})

    def forget(self, state: State, how: str, offset: int) -> None:
        """Something unseen may have written any variable."""
        state.forget(how, self.reading.line_of(offset), self.reading.path)

    def set_array(self, state: State, assignment: Assignment, how: str) -> None:
        """An array keeps its elements as a hint of what it may run."""
        scope = self.scope(state)
        elements = assignment.elements or ()
        values = (value_of(word, scope, assigned=False) or HOLE for word in elements)
        text = " ".join(re.sub(r"\s", HOLE, value) for value in values)  # a blank parts elements
        write = self.write(assignment.name, Means.COMPUTED, how, assignment.start, text)
        old = state.get(assignment.name)
        if "readonly" in old.attributes:
            return
        if self.is_sh:  # dash has no arrays, and takes it for a command
            maybe = Variable(HOLE, None, old.writers | {write}, old.earlier, old.attributes)
            state.put(assignment.name, maybe)
            return
        kept = old.writers if assignment.append or assignment.indexed else frozenset()
        state.put(
            assignment.name,
            Variable(HOLE, old.exported, kept | {write}, old.earlier, old.attributes | {"array"}),
        )

    def site_of(self, assignment: Assignment) -> Site | None:
        """Return where the value of an assignment can be replaced, None where it can't."""
        reading = self.reading
        if not reading.inside.is_editable or assignment.append or assignment.naked:
            return None
        return Site(
            start=assignment.start,
            value_start=assignment.value_start,
            end=assignment.end,
            pure=loses_nothing(assignment.value, assignment.name),
            inside=reading.inside,
        )

    def site_of_field(self, item: Field, name: str, lead: str = "") -> Site | None:
        """Return where the value of a word NAME=value can be replaced, None where it can't."""
        reading, word = self.reading, item.word
        if not item.alone or not reading.inside.is_editable:
            return None
        raw = reading.raw(word.start, word.end)
        assignment = bytes_of(lead + name + "=")
        pure = loses_nothing(word, name)
        if raw.startswith(assignment):
            return Site(
                start=word.start,
                value_start=word.start + len(assignment),
                end=word.end,
                pure=pure,
                inside=reading.inside,
            )
        quoted = raw[:1] in (b'"', b"'") and raw[1:].startswith(assignment)
        if not quoted or lead:
            return None
        return Site(word.start, word.start, word.end, whole=True, pure=pure, inside=reading.inside)

    # ---- effects of words

    def touch(self, words: Sequence[Word], state: State) -> None:
        """Interpret what expanding words does: substitutions run, ${A:=x} and ((A++)) assign."""
        for word in words:
            for part in word.parts:
                self._touch_part(part, state)

    def _touch_part(self, part: Part, state: State) -> None:
        match part:
            case DoubleQuoted():
                for inner in part.parts:
                    self._touch_part(inner, state)
            case Substitution():
                self._touch_substitution(part, state)
            case Arithmetic():
                self.touch_arithmetic(part, state)
            case Parameter():
                self.touch(part.inner, state)
                if part.indirect and NAME.fullmatch(part.name):
                    # no name to look up is an error: bash leaves the line, and all around it
                    self.failures += not state.get(part.name).value
                if part.computed is not None:
                    self.touch_arithmetic(part.computed, state)
                if part.argument:
                    self.touch([part.argument], state)
                if part.operator in (":=", "="):
                    self._assign_default(part, state)
            case _:
                pass

    def _touch_substitution(self, part: Substitution, state: State) -> None:
        # Between backquotes, backslashes mean something else: nothing is put there.
        reading = replace(self.reading, inside=Inside.ELSEWHERE)
        with self.read(reading if part.backquoted else self.reading):
            self.run_apart(part.body, state.copy())

    def touch_assignment(self, assignment: Assignment, state: State) -> None:
        """Interpret what expanding an assignment does, without the assignment itself."""
        elements = assignment.elements or ()
        self.touch([w for w in (assignment.value, *elements) if w], state)
        if assignment.subscripts is not None:
            self.touch_arithmetic(assignment.subscripts, state)

    def touch_arithmetic(self, arithmetic: Arithmetic, state: State) -> None:
        """Interpret what an arithmetic expression assigns."""
        self.touch(arithmetic.inner, state)
        for name in arithmetic.assigned:
            self.computed(state, name, "arithmetic", arithmetic.start)

    def _assign_default(self, part: Parameter, state: State) -> None:
        if not NAME.fullmatch(part.name):
            return
        value = state.get(part.name).value
        text = value_of(part.argument, self.scope(state))
        write = self.write(part.name, Means.COMPUTED, "${…:=…}", part.start, text)
        if value is None or (value == "" and part.operator == ":="):
            state.assign(part.name, write)
        elif not value.strip(HOLE):
            state.may_assign(part.name, write)
