"""The journalctl of a host made of processes: reads the logs that its systemctl writes.

Of the real one it knows what tools use to show a service's last lines. What it does not know is
refused, so that nobody takes a part for the whole.
"""

from __future__ import annotations

import argparse
import datetime
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.lab.process_systemctl import (
    invocations_path,
    log_path,
    read_invocations,
    times_path,
)

INVOCATION_FIELDS = ("_SYSTEMD_INVOCATION_ID=", "INVOCATION_ID=")
UNIT_FIELDS = ("_SYSTEMD_UNIT=", "UNIT=")


@dataclass(frozen=True)
class Slice:
    """Which part of a unit's log is wanted."""

    unit: str
    begin_bytes: int = 0
    end_bytes: int | None = None


@dataclass(frozen=True)
class Line:
    """One line of a log, with the time at which it had been written."""

    unit: str
    time_s: float
    text: str


def main(arguments: list[str]) -> int:
    """Print what was asked for."""
    host_dir, options = Path(arguments[0]), _parsed(arguments[1:])
    lines = [line for wanted in _slices(host_dir, options) for line in _lines(host_dir, wanted)]
    lines.sort(key=lambda line: line.time_s)
    begin_s, end_s = _moment(options.since), _moment(options.until)
    chosen = [line for line in lines if begin_s <= line.time_s <= (end_s or line.time_s)]
    if options.lines not in {None, "all"}:
        chosen = chosen[-int(options.lines) :]
    if options.reverse:
        chosen.reverse()
    for line in chosen:
        sys.stdout.write(f"{_shown(line, options.output)}\n")
    return 0


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="journalctl", allow_abbrev=False)
    parser.add_argument("-u", "--unit", action="append", default=[])
    parser.add_argument("-n", "--lines", nargs="?", const="10")
    parser.add_argument("-o", "--output", choices=("short", "short-iso", "cat"), default="short")
    parser.add_argument("-S", "--since", default="")
    parser.add_argument("-U", "--until", default="")
    parser.add_argument("-r", "--reverse", action="store_true")
    for ignored in (("-q", "--quiet"), ("--no-pager",), ("-b", "--boot"), ("--no-hostname",)):
        parser.add_argument(*ignored, action="store_true")
    parser.add_argument("matches", nargs="*")
    return parser.parse_args(arguments)


def _slices(host_dir: Path, options: argparse.Namespace) -> Iterator[Slice]:
    units, invocations = [_unit_name(unit) for unit in options.unit], set()
    for match in options.matches:
        if match.startswith(INVOCATION_FIELDS):
            invocations.add(match.partition("=")[2])
        elif match.startswith(UNIT_FIELDS):
            units.append(match.partition("=")[2])
        elif match != "+":
            sys.exit(f"Failed to add match '{match}': this host is made of processes")
    if not invocations:
        yield from (Slice(unit) for unit in units or _known_units(host_dir))
        return
    for unit in units or _known_units(host_dir):
        yield from _of_invocations(host_dir, unit, invocations)


def _of_invocations(host_dir: Path, unit: str, wanted: set[str]) -> Iterator[Slice]:
    known = read_invocations(host_dir, unit)
    ends: list[int | None] = [later.offset_bytes for later in known[1:]]
    for invocation, end_bytes in zip(known, [*ends, None], strict=True):
        if invocation.invocation_id in wanted:
            yield Slice(unit, invocation.offset_bytes, end_bytes)


def _unit_name(text: str) -> str:
    return text if "." in text else f"{text}.service"


def _known_units(host_dir: Path) -> list[str]:
    directory = invocations_path(host_dir, "x").parent
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _lines(host_dir: Path, wanted: Slice) -> Iterator[Line]:
    try:
        content = log_path(host_dir, wanted.unit).read_bytes()
    except FileNotFoundError:
        return
    stamps = _stamps(host_dir, wanted.unit)
    position = wanted.begin_bytes
    for raw in content[wanted.begin_bytes : wanted.end_bytes].splitlines(keepends=True):
        time_s = next((t for offset, t in reversed(stamps) if offset <= position), 0.0)
        yield Line(wanted.unit, time_s, raw.decode(errors="replace").rstrip("\r\n"))
        position += len(raw)


def _stamps(host_dir: Path, unit: str) -> list[tuple[int, float]]:
    try:
        rows = times_path(host_dir, unit).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    return [(int(offset), float(time_s)) for offset, time_s in (row.split() for row in rows)]


def _moment(text: str) -> float:
    """Return seconds since the epoch of `@SECONDS` or `YYYY-MM-DD HH:MM:SS`; 0 for no text."""
    if not text:
        return 0.0
    if text.startswith("@"):
        return float(text[1:])
    try:
        return datetime.datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        sys.exit(f"Failed to parse timestamp: {text}")


def _shown(line: Line, output: str) -> str:
    if output == "cat":
        return line.text
    moment = datetime.datetime.fromtimestamp(line.time_s).astimezone()
    iso = output == "short-iso"
    stamp = moment.isoformat(timespec="seconds") if iso else moment.strftime("%b %d %H:%M:%S")
    host = os.environ.get("FLEETCTL_LAB_NAME") or socket.gethostname()
    return f"{stamp} {host} {line.unit.removesuffix('.service')}: {line.text}"
