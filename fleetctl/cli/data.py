"""Data on stdout: text for people, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of data."""
    for line in lines:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_json(value: object) -> None:
    """Print one JSON document."""
    json.dump(value, sys.stdout, indent=1, ensure_ascii=False, default=str)
    sys.stdout.write("\n")
    sys.stdout.flush()
