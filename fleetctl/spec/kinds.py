"""Is a TOML file an experiment or a matrix?"""

from __future__ import annotations

from pathlib import Path

import tomli


def is_matrix(path: Path) -> bool:
    """Return whether a file has a `[matrix]` table; the loader judges unreadable ones."""
    try:
        return "matrix" in tomli.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
