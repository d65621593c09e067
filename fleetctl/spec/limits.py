"""Bounds that the system sets, whatever a spec may say."""

from __future__ import annotations

MOST_ARGUMENT_BYTES = 131_071
"""The longest argument, or NAME=value: Linux MAX_ARG_STRLEN is 131072 with the final NUL."""
MOST_TOKENS = 10_000_000
"""More than any model's context: a larger number is a mistake, and its filler would take hours."""
MOST_SEED = 2**63 - 1
"""The largest seed that every random generator and every record of a run takes."""
MOST_SESSIONS = 1_000_000
"""Sessions of one run, or of a control from another day."""
_MOST_SHOWN = 60


def shortened(text: str) -> str:
    """Return a text that fits into a message."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
