"""A shell script as typed nodes whose offsets count the bytes of the file.

shfmt parsed the script with unusual bytes masked, so every text is cut from the
original bytes again. Text is UTF-8 with surrogate escapes: no byte is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Literal:
    """Unquoted text, its backslashes still in."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class SingleQuoted:
    """'text', or $'text' where `ansi`."""

    start: int
    end: int
    text: str
    ansi: bool


@dataclass(frozen=True)
class DoubleQuoted:
    """Parts between double quotes; `localised` where a $ stands before them."""

    start: int
    end: int
    parts: tuple[Part, ...]
    localised: bool


@dataclass(frozen=True)
class Parameter:
    """$name or ${name...}.

    Attributes:
        operator: "" for the plain value, one of :- - := = :? ? :+ + with `argument`,
            or "other" for what this package does not compute (its words are in `inner`).
        index: the text between brackets, "" where there are none.
        computed: the arithmetic of its brackets and its slice.
        indirect: ${!name}: the variable that `name` names.
    """

    start: int
    end: int
    name: str
    operator: str
    argument: Word | None
    index: str
    inner: tuple[Word, ...]
    computed: Arithmetic | None = None
    indirect: bool = False


@dataclass(frozen=True)
class Substitution:
    """$(...), <(...) or >(...), or `...` where `backquoted`."""

    start: int
    end: int
    body: tuple[Statement, ...]
    backquoted: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """$((...)): which names it assigns, and the words inside.

    Attributes:
        assigned: names written; "" stands for one that cannot be told.
    """

    start: int
    end: int
    assigned: tuple[str, ...]
    inner: tuple[Word, ...]


@dataclass(frozen=True)
class Pattern:
    """An extended glob."""

    start: int
    end: int


Part: TypeAlias = (
    Literal | SingleQuoted | DoubleQuoted | Parameter | Substitution | Arithmetic | Pattern
)


@dataclass(frozen=True)
class Word:
    """One word of the shell, or the body of a here-document."""

    start: int
    end: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Assignment:
    """NAME=value, NAME+=value, NAME=(...), NAME[...]=value; in a declaration also a bare word.

    Attributes:
        name: "" for a bare word of a declaration, whose text is `value`.
        value: what follows the equals sign; None for NAME alone and for arrays.
        elements: the words of an array.
        indexed: NAME[...]=value.
        subscripts: the arithmetic of its brackets, and of those of its elements.
    """

    start: int
    end: int
    name: str
    value: Word | None
    elements: tuple[Word, ...] | None
    append: bool
    naked: bool
    indexed: bool
    value_start: int
    subscripts: Arithmetic | None = None


@dataclass(frozen=True)
class Redirect:
    """An operator, its word, and the body where it is a here-document.

    Attributes:
        variable: A of `{A}<file`, which gets the number of the descriptor.
    """

    operator: str
    word: Word | None
    heredoc: Word | None
    variable: str = ""
    start: int = 0


@dataclass(frozen=True)
class Simple:
    """Assignments and words: a command."""

    start: int
    end: int
    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Declaration:
    """export, declare, typeset, local, readonly."""

    start: int
    end: int
    variant: str
    arguments: tuple[Assignment, ...]


@dataclass(frozen=True)
class If:
    """`condition` is empty for the final else."""

    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]
    otherwise: If | None


@dataclass(frozen=True)
class While:
    """While, or until."""

    until: bool
    condition: tuple[Statement, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class For:
    """For or select over words; `items` is None for the positional parameters."""

    name: str
    items: tuple[Word, ...] | None
    body: tuple[Statement, ...]
    select: bool
    line_start: int


@dataclass(frozen=True)
class CountingFor:
    """for ((...))."""

    arithmetic: Arithmetic
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class CaseItem:
    """One arm; `terminator` is ;; or ;& or ;;&."""

    patterns: tuple[Word, ...]
    body: tuple[Statement, ...]
    terminator: str


@dataclass(frozen=True)
class Case:
    """Case."""

    subject: Word
    items: tuple[CaseItem, ...]


@dataclass(frozen=True)
class Group:
    """{ ...; } or, where `subshell`, ( ... )."""

    body: tuple[Statement, ...]
    subshell: bool


@dataclass(frozen=True)
class Chain:
    """left && right, left || right."""

    operator: str
    left: Statement
    right: Statement


@dataclass(frozen=True)
class Pipe:
    """left | right."""

    left: Statement
    right: Statement


@dataclass(frozen=True)
class Function:
    """A definition."""

    name: str
    body: Statement


@dataclass(frozen=True)
class Test:
    """[[ ... ]], ((...)) or let: words that may have effects."""

    words: tuple[Word, ...]
    arithmetic: Arithmetic | None


@dataclass(frozen=True)
class Wrapped:
    """`time` or `coproc` before a statement.

    Attributes:
        name: the array that a coprocess fills.
    """

    statement: Statement
    coprocess: bool
    name: str = ""


Command: TypeAlias = (
    Simple
    | Declaration
    | If
    | While
    | For
    | CountingFor
    | Case
    | Group
    | Chain
    | Pipe
    | Function
    | Test
    | Wrapped
)


@dataclass(frozen=True)
class Statement:
    """A command with its redirections; `command` is None for redirections alone."""

    start: int
    end: int
    command: Command | None
    redirects: tuple[Redirect, ...]
    background: bool
    negated: bool


@dataclass(frozen=True)
class Comment:
    """A comment without its #."""

    start: int
    text: str


@dataclass(frozen=True)
class Script:
    """A parsed file."""

    content: bytes
    body: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(default=())

    def line_of(self, offset: int) -> int:
        """Return the 1-based line of a byte offset."""
        return self.content.count(b"\n", 0, offset) + 1

    def line_start(self, offset: int) -> int:
        """Return the offset at which the line of `offset` begins."""
        return self.content.rfind(b"\n", 0, offset) + 1


def text_of(content: bytes) -> str:
    """Decode so that every byte survives."""
    return content.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The inverse of `text_of`."""
    return text.encode("utf-8", "surrogateescape")
