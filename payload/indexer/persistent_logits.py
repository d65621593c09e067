"""The scores' buffer is kept, by bucket and length; the columns still die when `select` returns."""

from __future__ import annotations

import torch
from torch import Tensor

from payload.device.contract import Device
from payload.indexer.contract import (
    Buffers,
    IndexerCall,
    IndexerParts,
    KeptBuffers,
    empty_choice,
    score_and_select,
)

NAME = "persistent_logits"


class PersistentLogitsIndexer:
    """Keeps the scores, allocates the columns per call."""

    def __init__(self, parts: IndexerParts) -> None:
        self._parts = parts
        self.kept = KeptBuffers()

    def select(self, device: Device, call: IndexerCall) -> Tensor:
        """Return the cache slots to attend to; good after the join."""
        columns = empty_choice(device, call)
        slots = empty_choice(device, call)
        logits = self.kept.get(device, "logits", (call.rows, call.capacity), torch.float32)
        return score_and_select(device, call, self._parts, Buffers(logits, columns, slots))


def build(parts: IndexerParts) -> PersistentLogitsIndexer:
    """Return the variant."""
    return PersistentLogitsIndexer(parts)
