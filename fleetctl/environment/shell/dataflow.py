"""What a script knows about its variables at one point: values, export marks, and who wrote them.

A value is text in which `HOLE` stands for what cannot be told without running the script
(no variable can hold a NUL, so it can't be mistaken), or None for a variable that is unset.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fleetctl.environment.quoting import Inside

HOLE = "\0"
_LARGEST = 2**63 - 1
_NO_ARITHMETIC = re.compile(r"[\w)]\s+[\w(]|[^\w\s()+*/%<>=!&|^~?:,#\[\]-]")


class Means(enum.Enum):
    """How a value got where it is."""

    INHERITED = "inherited"
    ASSIGNED = "assigned"
    PREFIX = "prefix"
    ENV_ARGUMENT = "env argument"
    CONTAINER_OPTION = "container option"
    UNSET = "unset"
    COMPUTED = "computed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Site:
    """The bytes of a value that may be replaced.

    Attributes:
        start: of the assignment: of NAME, or of the quote before it.
        value_start: of the value; equals `start` where NAME=value is one quoted word.
        end: of the value.
        whole: NAME=value is one quoted word and is replaced as a whole.
        pure: the old value has no effect of its own that would be lost.
        inside: what surrounds the text it stands in.
    """

    start: int
    value_start: int
    end: int
    whole: bool = False
    pure: bool = True
    inside: Inside = Inside.SCRIPT


@dataclass(frozen=True)
class Write:
    """One place that gives a variable its value.

    Attributes:
        how: for people: `export`, `read`, `source ./site.sh`.
        path: the file, "" for the script itself.
        line: 1-based, 0 where there is none.
        text: the value as far as the text tells, None for unset.
        site: where it can be edited, None where it can't.
    """

    name: str
    means: Means
    how: str
    path: str
    line: int
    offset: int
    text: str | None
    site: Site | None = None


@dataclass(frozen=True)
class Variable:
    """A variable at one point of the script, over all ways to get there.

    Attributes:
        exported: None where it depends on the way.
        writers: the writes whose value may be the present one.
        earlier: writes that were overwritten.
        attributes: readonly, integer, upper, lower, capital, array, nameref.
    """

    value: str | None
    exported: bool | None
    writers: frozenset[Write]
    earlier: frozenset[Write] = frozenset()
    attributes: frozenset[str] = frozenset()

    def join(self, other: Variable) -> Variable:
        """Return what is known where two ways meet."""
        if self == other:
            return self
        return Variable(
            value=self.value if self.value == other.value else HOLE,
            exported=self.exported if self.exported == other.exported else None,
            writers=self.writers | other.writers,
            earlier=self.earlier | other.earlier,
            attributes=self.attributes | other.attributes,
        )

    def is_absent(self) -> bool:
        """Say whether a child surely does not see it."""
        return self.value is None or self.exported is False or "array" in self.attributes

    def holds(self, wanted: str | None) -> bool:
        """Say whether a child surely sees exactly `wanted` (None: does not see it)."""
        if wanted is None:
            return self.is_absent()
        return self.value == wanted and self.exported is True and "array" not in self.attributes


NO_VARIABLE = Variable(None, exported=False, writers=frozenset())
"""A variable that surely does not exist."""
SHELL_GIVES = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})
"""Variables that every shell exports of its own accord."""


def inherited(name: str, text: str) -> Write:
    """Return the write of a value that was there from the start."""
    return Write(name, Means.INHERITED, "the caller", "", 0, 0, text)


def may_be_given(name: str) -> Variable:
    """Return a variable of which only its name is known."""
    return Variable(HOLE, exported=None, writers=frozenset({inherited(name, HOLE)}))


@dataclass(frozen=True)
class Hidden:
    """Variables that come back: hidden by a function's locals, or by the prefix of one command."""

    variables: Mapping[str, Variable]
    by_function: bool


@dataclass
class State:
    """All variables at one point. Mutable: each way through the script owns a copy.

    Attributes:
        fallback: what holds for a name that was never mentioned.
        export_all: `set -a` is on.
        strange_functions: code that nobody showed us ran, so any command may be a function.
        saved: what each function call and each prefix hides, outermost first.
        directory: the working directory as far as it is known.
        arguments: the positional parameters, None where they are unknown.
        started: numbers of the server starts on the way here.
    """

    variables: dict[str, Variable]
    fallback: Variable
    export_all: bool | None = False
    strange_functions: bool = False
    saved: tuple[Hidden, ...] = ()
    directory: str = HOLE
    arguments: tuple[str, ...] | None = None
    started: frozenset[int] = frozenset()

    def copy(self) -> State:
        """Return a state that can go another way."""
        return replace(self, variables=dict(self.variables))

    def get(self, name: str) -> Variable:
        """Return what is known about a name."""
        return self.variables.get(name, self.fallback)

    def join(self, other: State) -> State:
        """Return what is known where two ways meet."""
        names = self.variables.keys() | other.variables.keys()
        depth = min(len(self.saved), len(other.saved))
        return State(
            variables={name: self.get(name).join(other.get(name)) for name in names},
            fallback=self.fallback.join(other.fallback),
            export_all=self.export_all if self.export_all == other.export_all else None,
            strange_functions=self.strange_functions or other.strange_functions,
            saved=tuple(
                _join_saved(self, self.saved[i], other, other.saved[i]) for i in range(depth)
            ),
            directory=self.directory if self.directory == other.directory else HOLE,
            arguments=self.arguments if self.arguments == other.arguments else None,
            started=self.started | other.started,
        )

    def put(self, name: str, variable: Variable) -> None:
        """Replace what is known about a name."""
        self.variables[name] = variable

    def assign(
        self, name: str, write: Write, *, append: bool = False, export: bool | None = None
    ) -> None:
        """Give a variable the value `write.text`.

        Args:
            name: the variable.
            write: by whom.
            append: add to the present value.
            export: set (True) or take away (False) the export mark as well.
        """
        old = self.get(name)
        if "readonly" in old.attributes:
            return
        text = write.text or ""
        value = text if not append else (old.value or "") + text
        if (append and "integer" in old.attributes) or "array" in old.attributes:
            value = HOLE  # it is added, not put behind; an array passes its first value or none
        exported = old.exported if export is None else export
        if export is None and self.export_all is not False:
            exported = True if self.export_all or exported else None
        self.put(
            name,
            replace(
                old,
                value=_as_attributes_have_it(value, old.attributes),
                exported=exported,
                writers=(old.writers if append else frozenset()) | {write},
                earlier=old.earlier if append else old.earlier | old.writers - {write},
            ),
        )

    def may_assign(self, name: str, write: Write) -> None:
        """Give a variable a value on some ways only."""
        before = self.get(name)
        self.assign(name, write)
        self.put(name, before.join(self.get(name)))

    def unset(self, name: str, write: Write) -> None:
        """Remove a variable; a local one uncovers what it hid."""
        old = self.get(name)
        if "readonly" in old.attributes:
            return
        gone = replace(NO_VARIABLE, writers=frozenset({write}), earlier=old.earlier | old.writers)
        frames = (frame.variables for frame in reversed(self.saved))
        hidden = next((frame[name] for frame in frames if name in frame), None)
        self.put(name, gone if hidden is None else gone.join(hidden))

    def mark(
        self, name: str, *, exported: bool | None = None, attributes: Iterable[str] = ()
    ) -> None:
        """Change the export mark or add attributes, not the value."""
        old = self.get(name)
        self.put(
            name,
            replace(
                old,
                exported=old.exported if exported is None else exported,
                attributes=old.attributes | set(attributes),
            ),
        )

    @property
    def in_function(self) -> bool:
        """Say whether a declaration would be local."""
        return any(frame.by_function for frame in self.saved)

    def hide(self, name: str) -> None:
        """Remember a variable that a local one of the innermost call hides."""
        depth = max(i for i, frame in enumerate(self.saved) if frame.by_function)
        frame = self.saved[depth]
        if name not in frame.variables:
            frame = replace(frame, variables={**frame.variables, name: self.get(name)})
            self.saved = (*self.saved[:depth], frame, *self.saved[depth + 1 :])

    def enter(self, hidden: Hidden) -> None:
        """Begin a function call, or a command with a prefix."""
        self.saved = (*self.saved, hidden)

    def leave(self) -> None:
        """Bring back what the innermost call or prefix hid."""
        frame = self.saved[-1]
        self.saved = self.saved[:-1]
        for name, variable in frame.variables.items():
            self.put(name, variable)

    def forget(self, how: str, line: int, path: str) -> None:
        """Code that nobody can see ran: any variable may have been written."""
        self.strange_functions = True
        self.fallback = _clouded(self.fallback, "", how, line, path)
        for name, variable in self.variables.items():
            if "readonly" not in variable.attributes:
                self.variables[name] = _clouded(variable, name, how, line, path)


def join(*states: State | None) -> State | None:
    """Join the ways that exist."""
    joined: State | None = None
    for state in states:
        if state is not None and state is not joined:
            joined = state if joined is None else joined.join(state)
    return joined


def copied(state: State | None) -> State | None:
    """Return a copy, where there is something to copy."""
    return None if state is None else state.copy()


def _clouded(variable: Variable, name: str, how: str, line: int, path: str) -> Variable:
    write = Write(name, Means.UNKNOWN, how, path, line, 0, HOLE)
    return replace(variable, value=HOLE, exported=None, writers=variable.writers | {write})


def _join_saved(one: State, first: Hidden, two: State, second: Hidden) -> Hidden:
    if first == second:
        return first
    # Where only one way declared it local, the other way's present value is the one that stays.
    names = first.variables.keys() | second.variables.keys()
    return Hidden(
        {
            name: first.variables.get(name, one.get(name)).join(
                second.variables.get(name, two.get(name))
            )
            for name in names
        },
        first.by_function,
    )


def _as_attributes_have_it(value: str, attributes: frozenset[str]) -> str:
    if "integer" in attributes and not is_plain_integer(value):
        return HOLE
    if "capital" in attributes and value != value.capitalize():
        return HOLE
    if "upper" in attributes and value != value.upper():
        return HOLE
    if "lower" in attributes and value != value.lower():
        return HOLE
    return value


def is_no_arithmetic(text: str) -> bool:
    """Say whether bash may refuse a text where it wants a number: `1 2`, `a.b`."""
    return _NO_ARITHMETIC.search(text.replace(HOLE, "0")) is not None


def is_plain_integer(value: str) -> bool:
    """Say whether `declare -i` keeps the text as it is."""
    digits = value.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and (value == "0" or digits[0] != "0")
    return plain and abs(int(value)) <= _LARGEST
