"""A service's log of its current invocation, line by line, with who wrote it."""

from __future__ import annotations

import datetime
import re
from typing import Iterable

from fleetctl.agent.systemd import Systemctl
from fleetctl.transaction.telemetry import LogLine, LogSlice

# journalctl --output=short-iso: time, host, identifier[pid]: text
_LINE = re.compile(r"(\S+) \S+ [^\[\]:]*(?:\[(\d+)\])?: (.*)", re.DOTALL)


def read_log(systemctl: Systemctl, unit: str, most_lines: int) -> LogSlice:
    """Return the last lines that the unit's current or last invocation wrote."""
    found = systemctl.log_lines(unit, systemctl.show(unit), most_lines + 1)
    kept = found[-most_lines:]
    return LogSlice(tuple(parse_lines(kept)), cut=len(found) > most_lines)


def parse_lines(lines: Iterable[str]) -> Iterable[LogLine]:
    """Return journal lines as values; what has another form is kept as text without a pid."""
    for line in lines:
        match = _LINE.match(line)
        at_s = _seconds(match[1]) if match else None
        if match is None or at_s is None:
            yield LogLine(0, 0.0, line)
        else:
            yield LogLine(int(match[2] or 0), at_s, match[3])


def _seconds(text: str) -> float | None:
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None
