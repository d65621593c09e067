"""Which line of a TOML file holds a key: what an error message needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_PART = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
# a comment, a text of one line, or the beginning of a text of several
_TEXT = re.compile(r"""#[^\n]*|\"{3}|'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_ENDS = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
}


def line_of(text: str, location: Sequence[str | int]) -> int | None:
    """Return the 1-based line of the key at `location`, or of the nearest thing around it.

    `location` is a path as pydantic reports it: names and list indexes.
    """
    found: tuple[int, int] | None = None
    for number, path in _keys(text):
        depth = _shared(path, location)
        if depth and (found is None or depth > found[0]):
            found = (depth, number)
    return found[1] if found else None


def _keys(text: str) -> list[tuple[int, tuple[str | int, ...]]]:
    """Return each key's line and path; elements of an array of tables carry their index."""
    table: tuple[str | int, ...] = ()
    counts: dict[tuple[str | int, ...], int] = {}
    keys: list[tuple[int, tuple[str | int, ...]]] = []
    inside = _inside_texts(text)
    for number, line in enumerate(text.split("\n"), start=1):
        if number in inside:
            continue
        if header := _HEADER.match(line):
            table = tuple(_parts(header[2]))
            if header[1] == "[[":
                if table not in counts:
                    keys.append((number, table))
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            keys.append((number, table))
        elif key := _KEY.match(line):
            keys.append((number, (*table, *_parts(key[1]))))
    return keys


def _inside_texts(text: str) -> set[int]:
    """Return the lines that begin inside a text of several lines: what they hold is no key."""
    inside: set[int] = set()
    at = 0
    while found := _TEXT.search(text, at):
        at = found.end()
        if end := _ENDS.get(found.group()):
            whole = end.match(text, at)
            at = whole.end() if whole else len(text)
            first = text.count("\n", 0, found.start()) + 1
            inside |= set(range(first + 1, first + 1 + text.count("\n", found.start(), at)))
    return inside


def _parts(dotted: str) -> list[str]:
    parts = re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", dotted)
    return [part.strip("\"'") for part in parts]


def _shared(path: Sequence[str | int], location: Sequence[str | int]) -> int:
    """Return how many leading parts agree, or 0 when the path leads elsewhere."""
    wanted = list(location)[: len(path)]
    return len(path) if list(path) == wanted else 0
