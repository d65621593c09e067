"""Buffers from `empty` per call, as found: they die when `select` returns.

By then the side stream has only been told to use them. On the main stream their blocks are free.
"""

from __future__ import annotations

from torch import Tensor

from payload.device.contract import Device
from payload.indexer.contract import (
    Buffers,
    IndexerCall,
    IndexerParts,
    empty_choice,
    empty_logits,
    score_and_select,
)

NAME = "transient"


class TransientIndexer:
    """Allocates scores and columns per call."""

    def __init__(self, parts: IndexerParts) -> None:
        self._parts = parts

    def select(self, device: Device, call: IndexerCall) -> Tensor:
        """Return the cache slots to attend to; good after the join."""
        columns = empty_choice(device, call)
        slots = empty_choice(device, call)
        logits = empty_logits(device, call)
        return score_and_select(device, call, self._parts, Buffers(logits, columns, slots))


def build(parts: IndexerParts) -> TransientIndexer:
    """Return the variant."""
    return TransientIndexer(parts)
