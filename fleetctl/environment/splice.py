"""Replacements of bytes, applied together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.errors import InternalError


@dataclass(frozen=True)
class Splice:
    """The bytes from `start` to `end` become `new`; an insertion where both are equal."""

    start: int
    end: int
    new: bytes


def spliced(content: bytes, splices: Sequence[Splice]) -> bytes:
    """Return the content with all splices applied.

    Insertions at one offset keep their order; a splice that is given twice is applied once.

    Raises:
        InternalError: two splices replace the same bytes.
    """
    pieces = []
    position = 0
    for splice in sorted(dict.fromkeys(splices), key=lambda s: (s.start, s.end)):
        if splice.start < position:
            raise InternalError(
                "two edits want the same bytes",
                why=f"at offset {splice.start}",
                next_step="report this as a bug with the script",
            )
        pieces += [content[position : splice.start], splice.new]
        position = splice.end
    pieces.append(content[position:])
    return b"".join(pieces)
