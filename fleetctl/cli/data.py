"""Data on stdout: text for people, or one JSON document."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable

from fleetctl.errors import ExitCode, StoreError

# a pipe without a reader, and a terminal that was closed
_NOBODY_READS = (errno.EPIPE, errno.EIO)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of data."""
    _print("".join(f"{line}\n" for line in lines))


def print_json(value: object, *, is_short: bool = False) -> None:
    """Print one JSON document; a short one is a single line."""
    indent = None if is_short else 1
    _print(json.dumps(value, indent=indent, ensure_ascii=False, default=str) + "\n")


def _print(text: str) -> None:
    """Write to stdout; a reader that has left (`| head -1`) does not change the exit code."""
    if sys.stdout is None or sys.stdout.closed:
        return
    if hasattr(sys.stdout, "reconfigure"):
        # a terminal that can't show a letter shows its number
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        forget_reader()
        if error.errno in _NOBODY_READS:
            return
        raise StoreError(
            "the answer could not be written",
            why=f"stdout: {error.strerror}",
            next_step="make room there, or send stdout somewhere else, and ask again",
            exit_code=ExitCode.INTERNAL,
        ) from error


def forget_reader() -> None:
    """Let what is still buffered go nowhere: the interpreter flushes once more at its end."""
    if sys.stdout is None or sys.stdout.closed:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
