"""Replacements of bytes, applied together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.errors import InternalError


@dataclass(frozen=True)
class Splice:
    """The bytes from `start` to `end` become `new`; an insertion where both are equal.

    Attributes:
        order: of insertions at one offset, the lower one comes first.
    """

    start: int
    end: int
    new: bytes
    order: int = 0


def spliced(content: bytes, splices: Sequence[Splice]) -> bytes:
    """Return the content with all splices applied.

    Insertions of one order at one offset keep their sequence; a splice given twice counts once;
    deletions may overlap.

    Raises:
        InternalError: two splices replace the same bytes.
    """
    pieces = []
    position = 0
    for splice in sorted(dict.fromkeys(splices), key=lambda s: (s.start, s.end, s.order)):
        if splice.start < position and not splice.new:
            position = max(position, splice.end)
            continue
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
