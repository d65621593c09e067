"""Which line of a TOML file holds a key: what an error message needs."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")


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
    for number, line in enumerate(text.split("\n"), start=1):
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


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", dotted)]


def _shared(path: Sequence[str | int], location: Sequence[str | int]) -> int:
    """Return how many leading parts agree, or 0 when the path leads elsewhere."""
    wanted = list(location)[: len(path)]
    return len(path) if list(path) == wanted else 0
