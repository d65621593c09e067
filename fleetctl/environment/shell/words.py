"""What a word stands for, as far as the text of the script tells.

Nothing is executed: a command substitution is a hole, except for the few idioms by
which scripts find their own directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.shell.paths import moved, parent_of
from fleetctl.environment.shell.tree import (
    Arithmetic,
    Chain,
    DoubleQuoted,
    Literal,
    Parameter,
    Part,
    Pattern,
    Simple,
    SingleQuoted,
    Substitution,
    Word,
    bytes_of,
    text_of,
)

_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|(c.))",
    re.DOTALL,
)
_ANSI_SHORT = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
DEFAULT_SEPARATORS = " \t\n"
_GLOB = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{[^{}]*(,|\.\.)")


class Scope(Protocol):
    """What words need to know about variables."""

    def value_of(self, name: str) -> str | None:
        """Return a variable's value, None where it is unset."""
        ...

    def hints_of(self, name: str) -> tuple[str, ...]:
        """Return the texts that a variable was given anywhere before, for guessing what it runs."""
        ...

    def arguments(self) -> tuple[str, ...] | None:
        """Return the positional parameters, None where they are unknown."""
        ...

    def separators(self) -> str | None:
        """Return IFS, None where it is unknown."""
        ...

    def program(self) -> str:
        """Return $0."""
        ...

    def script_path(self) -> str:
        """Return the path of the text at hand, as BASH_SOURCE has it."""
        ...

    def real(self, path: str) -> str:
        """Return a path with its symbolic links followed, `HOLE` where they are not known."""
        ...

    def directory(self) -> str:
        """Return the working directory."""
        ...

    def is_sh(self) -> bool:
        """Say whether a shell of the name `sh` reads it, which may be dash."""
        ...


@dataclass(frozen=True)
class Field:
    """One argument a command gets.

    Attributes:
        text: with `HOLE` for what cannot be told.
        word: the word of the script it comes from.
        alone: it is the whole word, as it stands there.
        rest: it stands for any number of arguments.
    """

    text: str
    word: Word
    alone: bool = True
    rest: bool = False


def value_of(word: Word | None, scope: Scope, *, assigned: bool = True) -> str:
    """Return the value of a word that is not split (an assignment, a here-string, a case subject).

    Args:
        word: None for an empty value.
        scope: the variables.
        assigned: it stands after NAME= in an assignment, so braces are not expanded.
    """
    if word is None:
        return ""
    pieces = []
    for position, part in enumerate(word.parts):
        pieces.append(_part(part, scope, first=position == 0, braces=not assigned))
    return "".join(pieces)


def fields_of(word: Word, scope: Scope) -> tuple[Field, ...]:
    """Return the arguments a word of a command becomes."""
    expansion = _sole_expansion(word)
    if expansion is not None:
        found = _expanded(word, expansion, scope)
        if found is not None:
            return found
    if any(_is_several(part) for part in word.parts):
        return (Field(HOLE, word, rest=True),)
    text = value_of(word, scope, assigned=False)
    if text == HOLE and isinstance(word.parts[0], Literal):  # a hole in a text put together
        return (Field(HOLE, word, rest=True),)
    is_glob = any(isinstance(part, Literal) and _GLOB.search(part.text) for part in word.parts)
    if is_glob and text != "[":  # the command `[` matches itself
        text = _GLOB.sub(HOLE, text)
    return (Field(text, word),)


def arguments_of(items: Sequence[Field]) -> tuple[str, ...] | None:
    """Return what becomes $1, $2 and so on; None where their number can't be told."""
    several = (item.rest or (HOLE in item.text and _may_split(item.word)) for item in items)
    return None if any(several) else tuple(item.text for item in items)


def _may_split(word: Word) -> bool:
    return any(isinstance(part, Parameter | Substitution) for part in word.parts)


def _is_several(part: Part) -> bool:
    """Say whether a part ends one argument and begins another: `A="$@"`, "x${LIST[@]}"."""
    if isinstance(part, DoubleQuoted):
        return any(_is_several(inner) for inner in part.parts)
    return isinstance(part, Parameter) and (part.name == "@" or part.index == "@")


def is_quoted(word: Word) -> bool:
    """Say whether a here-document's delimiter makes its body literal."""
    return any(
        not isinstance(part, Literal) or "\\" in part.text or "'" in part.text or '"' in part.text
        for part in word.parts
    )


def unquoted(text: str) -> str:
    """Take the backslashes out of unquoted text."""
    return re.sub(r"\\(\n|.)", lambda m: "" if m[1] == "\n" else m[1], text, flags=re.DOTALL)


# ---- parts


def _part(part: Part, scope: Scope, *, first: bool = False, braces: bool = False) -> str:
    match part:
        case Literal():
            return _literal(part.text, first=first, braces=braces)
        case SingleQuoted():
            if not part.ansi:
                return part.text
            return HOLE if scope.is_sh() else _ansi(part.text)  # dash takes the `$` for itself
        case DoubleQuoted():
            return _double(part, scope)
        case Parameter():
            return _parameter(part, scope)
        case Substitution():
            return _idiom(part, scope)
        case Arithmetic() | Pattern():
            return HOLE


def _literal(text: str, *, first: bool, braces: bool) -> str:
    if (first and text.startswith("~")) or re.search(r"[:=]~", text):
        return HOLE
    if braces and _BRACES.search(text):
        return HOLE
    return unquoted(text)


def _double(part: DoubleQuoted, scope: Scope) -> str:
    if part.localised:
        return HOLE
    pieces = []
    for inner in part.parts:
        if isinstance(inner, Literal):
            pieces.append(_unquoted_in_double(inner.text))
        elif isinstance(inner, Parameter):
            pieces.append(_parameter(inner, scope, quoted=True))
        else:
            pieces.append(_part(inner, scope))
    return "".join(pieces)


def _unquoted_in_double(text: str) -> str:
    """Undo backslashes; one at the end is a continued line, whose newline shfmt leaves out."""
    return re.sub(r'\\([$`"\\\n]|\Z)', lambda m: m[1].strip("\n"), text)


def _ansi(text: str) -> str:
    """Decode $'...'; a NUL or a control escape is not worth a rule."""
    out = bytearray()
    position = 0
    for found in _ANSI.finditer(text):
        out += bytes_of(text[position : found.start()])
        position = found.end()
        short, hexadecimal, octal, small, large, control = found.groups()
        if short:
            out += _ANSI_SHORT[short].encode()
        elif hexadecimal or octal:
            out.append(int(hexadecimal or octal, 16 if hexadecimal else 8) & 255)
        elif control:
            return HOLE
        else:
            out += chr(int(small or large, 16)).encode("utf-8", "surrogatepass")
    out += bytes_of(text[position:])
    return HOLE if b"\0" in out else text_of(bytes(out))


def _parameter(part: Parameter, scope: Scope, *, quoted: bool = False) -> str:
    if part.operator == "other" or part.index:
        return _own_directory(part, scope)
    value = _variable(part.name, scope)
    operator = part.operator
    if operator in ("", ":?", "?"):
        return value or ""
    decided = _is_set(value, colon=operator.startswith(":"))
    if decided is None:
        return HOLE
    if operator in (":+", "+"):
        return _argument(part, scope, quoted=quoted) if decided else ""
    return (value or "") if decided else _argument(part, scope, quoted=quoted)


def _argument(part: Parameter, scope: Scope, *, quoted: bool) -> str:
    if part.argument is None or not quoted:
        return value_of(part.argument, scope)
    return "".join(_part_in_double(inner, scope) for inner in part.argument.parts)


def _part_in_double(part: Part, scope: Scope) -> str:
    """Between double quotes, single quotes and the tilde of ${A:-...} are plain text."""
    match part:
        case Literal():
            return _unquoted_in_double(part.text.replace("\\}", "}"))
        case SingleQuoted():
            is_plain = not part.ansi and re.search(r"[$`\\\"]", part.text) is None
            return f"'{part.text}'" if is_plain else HOLE
        case Parameter():
            return _parameter(part, scope, quoted=True)
        case _:
            return _part(part, scope)


def _is_set(value: str | None, *, colon: bool) -> bool | None:
    """Say whether ${name:-...} takes the variable; None where that can't be told."""
    if value is None:
        return False
    if value == "":
        return not colon
    if value.strip(HOLE):
        return True
    return None


def _variable(name: str, scope: Scope) -> str | None:
    if name == "0":
        return scope.program()
    if name in ("@", "*"):
        known = scope.arguments()
        if known is None or (len(known) > 1 and scope.separators() != DEFAULT_SEPARATORS):
            return HOLE
        return " ".join(known)
    if name.isdigit():
        known = scope.arguments()
        if known is None:
            return HOLE
        return known[int(name) - 1] if int(name) <= len(known) else None
    if not (name[:1].isalpha() or name[:1] == "_"):
        return HOLE
    if name == "PWD":
        return scope.directory()
    return scope.value_of(name)


def _own_directory(part: Parameter, scope: Scope) -> str:
    source = part.name == "BASH_SOURCE" and part.index in ("0", "")
    if source and scope.is_sh():  # which dash does not know
        return HOLE
    if source and part.operator == "":
        return scope.script_path()
    own = source or part.name == "0"
    if own and part.operator == "other" and _is_trimmed_to_directory(part):
        path = scope.script_path() if source else scope.program()
        return parent_of(path) if "/" in path else path
    return HOLE


def _is_trimmed_to_directory(part: Parameter) -> bool:
    """Recognise ${0%/*}: its pattern is the only word inside."""
    texts = [p.text for word in part.inner for p in word.parts if isinstance(p, Literal)]
    return "/*" in texts and part.end - part.start <= len("${BASH_SOURCE[0]%/*}")


def _idiom(part: Substitution, scope: Scope) -> str:
    """Follow `dirname X`, `realpath X`, `readlink -f X`, `pwd` and `cd X && pwd`."""
    if len(part.body) != 1 or part.body[0].redirects:
        return HOLE
    command = part.body[0].command
    if isinstance(command, Chain) and command.operator == "&&":
        going = _simple_words(command.left.command, scope)
        asking = _simple_words(command.right.command, scope)
        target = [word for word in going if word not in ("--", "-P")]
        if target[:1] != ["cd"] or len(target) != 2 or asking[:1] != ["pwd"]:
            return HOLE
        there = moved(scope.directory(), target[1])
        return scope.real(there) if "-P" in (*going, *asking) else there
    match [word for word in _simple_words(command, scope) if word != "--"]:
        case ["pwd"]:
            return scope.directory()
        case ["dirname", path]:
            return parent_of(path)
        case ["realpath", path] | ["readlink", "-f" | "-e", path]:
            return scope.real(moved(scope.directory(), path))
        case _:
            return HOLE


def _simple_words(command: object, scope: Scope) -> list[str]:
    if not isinstance(command, Simple) or command.assignments:
        return []
    return [value_of(word, scope, assigned=False) for word in command.words]


# ---- words that become several arguments


def _sole_expansion(word: Word) -> Parameter | None:
    """Return the only expansion of "$@", $CMD, "${CMD[@]}" and the like."""
    parts = word.parts
    if len(parts) == 1 and isinstance(parts[0], DoubleQuoted):
        parts = parts[0].parts
        if len(parts) == 1 and isinstance(parts[0], Parameter):
            several = parts[0].name == "@" or parts[0].index == "@"
            return parts[0] if several else None
        return None
    if len(parts) == 1 and isinstance(parts[0], Parameter):
        return parts[0]
    return None


def _expanded(word: Word, expansion: Parameter, scope: Scope) -> tuple[Field, ...] | None:
    if expansion.name in ("@", "*"):
        known = scope.arguments()
        if known is None or expansion.operator == "other":
            return (Field(HOLE, word, rest=True),)
        return tuple(Field(text, word, alone=False) for text in known)
    if expansion.operator == "other" or expansion.name.isdigit():
        return None
    value = scope.value_of(expansion.name)
    if value is not None and HOLE not in value and not expansion.index:
        return _split(value, word, scope)
    hints = tuple(_hint_fields(word, scope.hints_of(expansion.name)))
    if not hints:
        return (Field(HOLE, word, rest=True),)
    return hints


def _split(value: str, word: Word, scope: Scope) -> tuple[Field, ...]:
    separators = scope.separators()
    if separators == DEFAULT_SEPARATORS:
        return tuple(Field(text, word, alone=False) for text in value.split())
    if separators is None or set(value) & set(separators):
        return (Field(HOLE, word, rest=True),)
    return (Field(value, word, alone=False),) if value else ()


def _hint_fields(word: Word, hints: tuple[str, ...]) -> Iterator[Field]:
    for hint in hints:
        for text in hint.split():
            yield Field(text, word, alone=False, rest=text == HOLE)
