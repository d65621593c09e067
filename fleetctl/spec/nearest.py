"""The nearest valid name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# names of flags share long beginnings, and most new ones are new on purpose
SURELY_MISTYPED = 0.9


def nearest(name: str, valid: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean `x`?" for the closest valid name, or nothing.

    Args:
        name: as it was typed.
        valid: the names that there are.
        cutoff: how much of both names must agree, from 0 to 1.
    """
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=cutoff)
    return f"; did you mean `{close[0]}`?" if close else ""
