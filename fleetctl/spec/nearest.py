"""The nearest valid name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return "; did you mean `x`?" for the closest valid name, or nothing."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""
