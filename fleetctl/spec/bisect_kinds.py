"""Is a TOML file a search, and which kind?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import tomli

SearchKind = Literal["bisect", "minimize"]


def search_kind(path: Path) -> SearchKind | None:
    """Return which search a file's tables ask for; None for anything else.

    A list of changes alone is taken for a bisection. A file that can't be read is left to the
    loaders, which say why.
    """
    try:
        tables = tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if "minimize" in tables:
        return "minimize"
    return None if {"bisect", "commits", "change"}.isdisjoint(tables) else "bisect"
