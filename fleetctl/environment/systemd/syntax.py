"""How systemd reads a unit file: lines, words, specifiers. Checked against systemd 252 itself.

Source: systemd.syntax(7), systemd.unit(5) "Specifiers".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.shell.tree import bytes_of, text_of

_BLANKS = " \t\n\r"
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "s": " ",
}  # fmt: skip
_NUMBERED = re.compile(r"x([0-9a-fA-F]{2})|([0-3][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?\.service")


@dataclass(frozen=True)
class Entry:
    """One assignment of a unit file.

    Attributes:
        line: 1-based line on which it begins.
        last_line: the line on which it ends, where it is continued.
    """

    section: str
    key: str
    value: str
    line: int
    last_line: int


@dataclass(frozen=True)
class UnitWord:
    """A word of a value, unquoted and unescaped; specifiers are still in.

    Attributes:
        start: offset in the value.
        end: offset behind its last character.
    """

    text: str
    start: int
    end: int


def entries(content: bytes) -> Iterator[Entry]:
    """Yield the assignments of a unit file as systemd sees them."""
    text = text_of(content).removeprefix("\ufeff")
    section = ""
    for first, last, line in _logical_lines(text):
        if not _is_utf8(line):
            continue
        if line.startswith("["):
            section = line[1:-1] if line.endswith("]") else section
            continue
        key, equals, value = line.partition("=")
        if equals:
            yield Entry(section, key.strip(_BLANKS), value.strip(_BLANKS), first, last)


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    joined: str | None = None
    begun = 0
    number = 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if raw.lstrip(_BLANKS)[:1] in ("#", ";"):
            continue
        begun = number if joined is None else begun
        # a continued line keeps its leading blanks: inside quotes they are part of the value
        line = raw if joined is None else joined + raw
        if _ends_in_backslash(line):
            joined = line[:-1] + " "
            continue
        joined = None
        if line.strip(_BLANKS):
            yield begun, number, line.strip(_BLANKS)
    if joined is not None and joined.strip(_BLANKS):
        yield begun, number, joined.strip(_BLANKS)


def _ends_in_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _is_utf8(text: str) -> bool:
    return not any("\udc80" <= c <= "\udcff" for c in text)


def words(value: str) -> list[UnitWord]:
    """Split a value into words; from a broken one on, the rest is ignored as systemd does."""
    found: list[UnitWord] = []
    position = 0
    while True:
        while position < len(value) and value[position] in _BLANKS:
            position += 1
        if position >= len(value):
            return found
        word = _word(value, position)
        if word is None:
            return found
        found.append(word)
        position = word.end


def _word(value: str, start: int) -> UnitWord | None:
    out = bytearray()
    quote = ""
    position = start
    while position < len(value):
        c = value[position]
        if c == "\\":
            taken = _escape(value, position + 1, out)
            if not taken:
                return None
            position += 1 + taken
            continue
        if quote:
            if c == quote:
                quote = ""
            else:
                out += bytes_of(c)
        elif c in "'\"":
            quote = c
        elif c in _BLANKS:
            break
        else:
            out += bytes_of(c)
        position += 1
    return None if quote else UnitWord(text_of(bytes(out)), start, position)


def _escape(value: str, position: int, out: bytearray) -> int:
    """Append what an escape stands for; return how many characters it takes, 0 for a broken one."""
    c = value[position : position + 1]
    if c in _ESCAPES and c:
        out += _ESCAPES[c].encode()
        return 1
    found = _NUMBERED.match(value, position)
    if found is None:
        return 0
    hexadecimal, octal, small, large = found.groups()
    if hexadecimal or octal:
        number = int(hexadecimal or octal, 16 if hexadecimal else 8)
        if number == 0:
            return 0
        out.append(number)
    else:
        number = int(small or large, 16)
        if number == 0 or number > 0x10FFFF:
            return 0
        out += chr(number).encode("utf-8", "surrogatepass")
    return found.end() - position


def with_specifiers(text: str, unit: str, home: str, *, system: bool) -> str:
    """Replace %n, %i and the like; what only the host, or another systemd, knows becomes `HOLE`."""
    name = unit.removesuffix(".service")
    prefix, at, instance = name.partition("@")
    known = {
        "%": "%",
        "n": unit,
        "N": name,
        "p": prefix,
        "i": instance,
        "I": _unescaped(instance) if at else "",
        "P": _unescaped(prefix),
        "j": prefix.rpartition("-")[2],
        "J": _unescaped(prefix.rpartition("-")[2]),
        "h": home,
        "t": "/run" if system else HOLE,
        "S": "/var/lib" if system else HOLE,
        "C": "/var/cache" if system else HOLE,
        "L": "/var/log" if system else HOLE,
        "E": "/etc" if system else HOLE,
        "T": "/tmp",  # noqa: S108 - what systemd puts there, nothing is written to it
        "V": "/var/tmp",  # noqa: S108 - as above
        "u": "root" if system else HOLE,
        "U": "0" if system else HOLE,
        "g": "root" if system else HOLE,
        "G": "0" if system else HOLE,
    }
    return re.sub(r"%([0-9A-Za-z%])", lambda m: known.get(m[1], HOLE), text)


def _unescaped(text: str) -> str:
    text = text.replace("-", "/")
    return re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), text)
