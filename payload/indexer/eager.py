"""The indexer runs outside the graph: the capture is split, the host launches it between the parts.

Its buffers are PyTorch's own and live until the work is done.
"""

from __future__ import annotations

import torch
from torch import Tensor

from payload.device.contract import Device
from payload.indexer.contract import IndexerCall, IndexerParts, empty_choice, to_slots

NAME = "eager"


class EagerIndexer:
    """Leaves the graph for each call."""

    def __init__(self, parts: IndexerParts) -> None:
        self._parts = parts

    def select(self, device: Device, call: IndexerCall) -> Tensor:
        """Return the cache slots to attend to; good at once."""
        slots = empty_choice(device, call)
        inputs = (call.q, call.weights, call.k_pages, call.page_table, call.lengths)
        sizes = (call.capacity, call.top_k)
        device.launch_outside_graph(self._whole, *inputs, *sizes, out=slots)
        return slots

    def _whole(
        self,
        q: Tensor,
        weights: Tensor,
        k_pages: Tensor,
        page_table: Tensor,
        lengths: Tensor,
        capacity: int,
        top_k: int,
        *,
        out: Tensor,
    ) -> None:
        logits = torch.empty((q.shape[0], capacity), dtype=torch.float32, device=q.device)
        columns = torch.empty((q.shape[0], top_k), dtype=torch.int32, device=q.device)
        self._parts.score(q, weights, k_pages, page_table, lengths, out=logits)
        self._parts.select(logits, lengths, out=columns)
        to_slots(columns, page_table, out=out)


def build(parts: IndexerParts) -> EagerIndexer:
    """Return the variant."""
    return EagerIndexer(parts)
