"""What people and programs read: origins of flags, diffs of edits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from fleetctl.environment.explain import FlagOrigin, Place, Running
from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.shell.tree import text_of
from fleetctl.spec.quoted import quoted

_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY)$")
_LONGEST = 48


def render_origins(origins: Sequence[FlagOrigin]) -> tuple[str, ...]:
    """Return the lines of a table: a flag, its value, who sets it, what runs; findings below.

    Values of secrets are left out.
    """
    rows = [("FLAG", "VALUE", "SET BY", "RUNNING")]
    rows += [_row(origin) for origin in origins]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join((*cells, row[3])).rstrip())
        if number:
            lines += [f"    {text}" for text in _details(origins[number - 1])]
    return tuple(lines)


def _row(origin: FlagOrigin) -> tuple[str, str, str, str]:
    setters = ", ".join(dict.fromkeys(_where(place) for place in origin.setters)) or "nobody"
    return origin.name, shown_value(origin.name, origin.value), setters, _runs(origin)


def _where(place: Place) -> str:
    return f"{place.path}:{place.line}" if place.path else place.how


def _runs(origin: FlagOrigin) -> str:
    servers: list[Running] = [p for p in origin.running if p.counts]
    if not servers:
        return "(unreadable)" if any(not p.is_readable for p in origin.running) else "-"
    values = sorted({shown_value(origin.name, p.value) for p in servers})
    count = f" ({len(servers)} processes)" if len(servers) > 1 else ""
    return " | ".join(values) + count


def _details(origin: FlagOrigin) -> Iterator[str]:
    for place in origin.overridden:
        value = shown_value(origin.name, place.value)
        yield f"overridden: {_where(place)} {place.how} {value}"
    for noted in origin.findings:
        where = f" ({noted.path}:{noted.line})" if noted.path else ""
        yield f"{noted.finding.value}: {noted.what}{where}"


def shown_value(name: str, value: str | None) -> str:
    """Return a value for people: short, in one line, without secrets."""
    if value is None:
        return "(unset)"
    if _SECRET.search(name) and len(value) >= 8:
        return f"(secret, {len(value)} characters)"
    text = value.replace(HOLE, "…")
    text = text if text.isprintable() and text else quoted(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def origins_as_json(origins: Sequence[FlagOrigin]) -> list[dict[str, object]]:
    """Return the same as plain data; a value that can't be told is null beside `known: false`."""
    return [
        {
            "flag": origin.name,
            "value": _plain(origin.name, origin.value),
            "known": origin.value is None or HOLE not in origin.value,
            "set_by": [_place(origin.name, place) for place in origin.setters],
            "overridden": [_place(origin.name, place) for place in origin.overridden],
            "running": [
                {
                    "pid": p.pid,
                    "shell": p.is_shell,
                    "readable": p.is_readable,
                    "value": _plain(origin.name, p.value),
                }
                for p in origin.running
            ],
            "findings": [
                {"finding": n.finding.value, "what": n.what, "path": n.path, "line": n.line}
                for n in origin.findings
            ],
        }
        for origin in origins
    ]


def _place(name: str, place: Place) -> dict[str, object]:
    value = _plain(name, place.value)
    return {"path": place.path, "line": place.line, "how": place.how, "value": value}


def _plain(name: str, value: str | None) -> str | None:
    if value is None or HOLE in value:
        return None
    return shown_value(name, value) if _SECRET.search(name) else value


def unified_diff(path: str, old: bytes | None, new: bytes | None) -> str:
    """Return the change of a file as `diff -u` shows it; bytes that are no text are escaped."""
    lines = difflib.unified_diff(
        _lines(old),
        _lines(new),
        path if old is not None else "/dev/null",
        path if new is not None else "/dev/null",
        n=2,
    )
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
    return "".join(ended)


def _lines(content: bytes | None) -> list[str]:
    text = text_of(content or b"").encode("utf-8", "backslashreplace").decode()
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()
    return [*lines, last[:-1]] if last != "\n" else lines
