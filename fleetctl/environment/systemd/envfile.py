"""Environment files: how systemd reads them, and exact edits of single values.

The states are those of systemd's reader: quotes at the start of a value are taken off,
a backslash quotes, the end of an unquoted value loses its blanks, # inside a value is data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.environment.names import check_edits
from fleetctl.environment.quoting import file_quoted
from fleetctl.environment.shell.tree import bytes_of, text_of
from fleetctl.environment.splice import Splice, spliced
from fleetctl.errors import EditRefused

_BLANKS = b" \t"
_NEWLINES = b"\n\r"
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*\Z")
_KEPT_ESCAPES = b'"\\`$'


@dataclass(frozen=True)
class FileEntry:
    """One assignment.

    Attributes:
        start: offset of the name.
        value_start: offset behind the equals sign.
        end: offset behind the value, before its newline.
        line: 1-based.
    """

    name: str
    value: str
    start: int
    value_start: int
    end: int
    line: int


def file_entries(content: bytes) -> list[FileEntry]:
    """Return the assignments that systemd takes from an environment file, in order."""
    found = []
    position = 0
    while position < len(content):
        c = content[position : position + 1]
        if c in (b" ", b"\t", b"\n", b"\r"):
            position += 1
        elif c in (b"#", b";"):
            position = _after_comment(content, position)
        else:
            entry, position = _entry(content, position)
            if entry is not None:
                found.append(entry)
    return found


def _after_comment(content: bytes, position: int) -> int:
    while position < len(content):
        c = content[position]
        if c == ord("\\"):
            position += 1  # systemd 252 continues a comment, too
        elif c in _NEWLINES:
            return position + 1
        position += 1
    return position


def _entry(content: bytes, start: int) -> tuple[FileEntry | None, int]:
    end = start + 1  # systemd takes the first character for a name, even =
    while end < len(content) and content[end] != ord("="):
        if content[end] in _NEWLINES:
            return None, end + 1
        end += 1
    if end >= len(content):
        return None, end
    name = content[start:end].rstrip(b" \t\n\r")
    value, stop = _value(content, end + 1)
    text = text_of(value)
    usable = _NAME.match(name) and not any("\udc80" <= c <= "\udcff" for c in text)
    if not usable:
        return None, stop
    line = content.count(b"\n", 0, start) + 1
    return FileEntry(name.decode(), text, start, end + 1, stop, line), stop


def _value(content: bytes, position: int) -> tuple[bytes, int]:
    """Return a value and the offset of the newline that ends it."""
    out = bytearray()
    while position < len(content):
        c = content[position]
        if c in _NEWLINES:
            return bytes(out), position
        if c in _BLANKS:
            position += 1
        elif c in b"'\"":
            position = _quoted(content, position, out)
        else:
            return _unquoted(content, position, out)
    return bytes(out), position


def _quoted(content: bytes, position: int, out: bytearray) -> int:
    quote = content[position]
    position += 1
    while position < len(content) and content[position] != quote:
        c = content[position]
        if c == ord("\\") and quote == ord('"'):
            position += 1
            following = content[position : position + 1]
            if following and following not in (b"\n",) and following[0] not in _KEPT_ESCAPES:
                out.append(c)
            if following != b"\n":
                out += following
        else:
            out.append(c)
        position += 1
    return position + 1


def _unquoted(content: bytes, position: int, out: bytearray) -> tuple[bytes, int]:
    kept = len(out)
    while position < len(content) and content[position] not in _NEWLINES:
        c = content[position]
        if c == ord("\\"):
            position += 1
            following = content[position : position + 1]
            if following and following[0] not in _NEWLINES:
                out += following
            kept = len(out)
        else:
            out.append(c)
            kept = len(out) if c not in _BLANKS else kept
        position += 1
    return bytes(out[:kept]), position


def file_values(content: bytes) -> dict[str, str]:
    """Return what a file sets: the last assignment of a name wins."""
    return {entry.name: entry.value for entry in file_entries(content)}


def edit_env_file(content: bytes, edits: Mapping[str, str | None]) -> bytes:
    """Return an environment file that sets exactly the wanted values; None takes a name out.

    Values are written so that systemd and a shell that sources the file read the same.

    Raises:
        EditRefused: `invalid-name`, `invalid-value`, or `unsupported` where a quote is open.
    """
    check_edits(edits)
    splices: list[Splice] = []
    tail = b""
    for name, wanted in edits.items():
        own = [entry for entry in file_entries(content) if entry.name == name]
        if wanted is None:
            splices += [_without(content, entry) for entry in own]
        elif not own:
            tail += bytes_of(f"{name}={file_quoted(wanted)}\n")
        elif own[-1].value != wanted:
            last = own[-1]
            new = bytes_of(file_quoted(wanted))
            splices.append(Splice(last.value_start, last.end, new))
    if tail and content and not content.endswith(b"\n"):
        tail = b"\n" + tail
    after = spliced(content, splices) + tail
    _check(content, after, edits)
    return after


def _check(before: bytes, after: bytes, edits: Mapping[str, str | None]) -> None:
    """Refuse an edit that is not read as it was meant: an open quote may swallow it."""
    wanted = {name: value for name, value in file_values(before).items() if name not in edits}
    wanted |= {name: value for name, value in edits.items() if value is not None}
    if file_values(after) != wanted:
        raise EditRefused(
            "the environment file can't be edited exactly",
            code="unsupported",
            why="a quote or a backslash in it is open, so an edit would change other values",
            next_step="close the quote in the file",
        )


def _without(content: bytes, entry: FileEntry) -> Splice:
    start = content.rfind(b"\n", 0, entry.start) + 1
    end = content.find(b"\n", entry.end)
    return Splice(start, len(content) if end < 0 else end + 1, b"")


def is_env_file(content: bytes) -> bool:
    """Say whether a file has nothing but NAME=value lines, comments and blank lines."""
    if content.startswith(b"#!") or not file_entries(content):
        return False
    covered = content
    for entry in reversed(file_entries(content)):
        covered = covered[: entry.start] + covered[entry.end :]
    return all(not line.strip() or line.lstrip()[:1] in b"#;" for line in covered.splitlines())
