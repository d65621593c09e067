"""Every buffer of the indexer is kept, by bucket and length: nothing dies, nothing is reused."""

from __future__ import annotations

import torch
from torch import Tensor

from payload.device.contract import Device
from payload.indexer.contract import (
    Buffers,
    IndexerCall,
    IndexerParts,
    KeptBuffers,
    score_and_select,
)

NAME = "persistent_all"


class PersistentAllIndexer:
    """Keeps scores, columns and slots."""

    def __init__(self, parts: IndexerParts) -> None:
        self._parts = parts
        self.kept = KeptBuffers()

    def select(self, device: Device, call: IndexerCall) -> Tensor:
        """Return the cache slots to attend to; good after the join."""
        chosen = (call.rows, call.top_k)
        columns = self.kept.get(device, "columns", chosen, torch.int32)
        slots = self.kept.get(device, "slots", chosen, torch.int32)
        logits = self.kept.get(device, "logits", (call.rows, call.capacity), torch.float32)
        return score_and_select(device, call, self._parts, Buffers(logits, columns, slots))


def build(parts: IndexerParts) -> PersistentAllIndexer:
    """Return the variant."""
    return PersistentAllIndexer(parts)
