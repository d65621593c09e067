"""What an indexer variant is given and what it must return.

A variant decides where the indexer's buffers come from and on which side of the graph it runs;
the work itself (score, select, translate columns to cache slots) is `score_and_select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from payload.cache.layout import PAGE_TOKENS
from payload.device.contract import Device, Kernel


class Stash(Protocol):
    """Copies of what the indexer read and wrote in one call of a captured step."""

    def record(self, device: Device, call: IndexerCall, logits: Tensor, columns: Tensor) -> None:
        """Launch the copies on the current stream."""
        ...


@dataclass(frozen=True)
class IndexerCall:
    """One layer's question for every row of a batch.

    Attributes:
        layer: which layer asks.
        q: `[B, H, D]`, bf16; or float8_e4m3fn for fp8 pages (bf16 works, too: keys are widened).
        weights: `[B, H]` float32.
        k_pages: the layer's index-K pool, see `payload.cache.layout`.
        page_table: `[B, P]` int32.
        lengths: `[B]` int32; 0 for a padded row.
        capacity: columns of the scores: what a page table can address, P * 64.
        top_k: how many positions to choose.
        stash: where to copy inputs and outputs, or None.
    """

    layer: int
    q: Tensor
    weights: Tensor
    k_pages: Tensor
    page_table: Tensor
    lengths: Tensor
    capacity: int
    top_k: int
    stash: Stash | None = None

    @property
    def rows(self) -> int:
        """The (padded) batch size."""
        return self.q.shape[0]


@dataclass(frozen=True)
class IndexerParts:
    """What a variant is built from.

    Attributes:
        score: fills logits `[B, capacity]` float32 from (q, weights, pages, table, lengths).
        select: fills columns `[B, top_k]` int32 from (logits, lengths); -1 = empty.
    """

    score: Kernel
    select: Kernel


class Indexer(Protocol):
    """A variant."""

    def select(self, device: Device, call: IndexerCall) -> Tensor:
        """Return the cache slots `[B, top_k]` int32 to attend to, in any order, -1 = empty.

        The result is good once the device's streams are joined.
        """
        ...


@dataclass(frozen=True)
class Buffers:
    """Where the indexer's intermediate results go.

    Attributes:
        logits: `[B, capacity]` float32.
        columns: `[B, top_k]` int32.
        slots: `[B, top_k]` int32, the result.
    """

    logits: Tensor
    columns: Tensor
    slots: Tensor


def score_and_select(
    device: Device, call: IndexerCall, parts: IndexerParts, buffers: Buffers
) -> Tensor:
    """Launch the indexer's work on the side stream and return the slots.

    Nothing here keeps a buffer alive: whoever allocated it answers for its life until the join.
    """
    with device.side():
        inputs = (call.q, call.weights, call.k_pages, call.page_table, call.lengths)
        device.launch(parts.score, *inputs, out=buffers.logits)
        device.launch(parts.select, buffers.logits, call.lengths, out=buffers.columns)
        if call.stash is not None:
            call.stash.record(device, call, buffers.logits, buffers.columns)
        device.launch(to_slots, buffers.columns, call.page_table, out=buffers.slots)
    return buffers.slots


def empty_logits(device: Device, call: IndexerCall) -> Tensor:
    """Return a new `[B, capacity]` float32."""
    return device.empty((call.rows, call.capacity), torch.float32)


def empty_choice(device: Device, call: IndexerCall) -> Tensor:
    """Return a new `[B, top_k]` int32."""
    return device.empty((call.rows, call.top_k), torch.int32)


def to_slots(columns: Tensor, page_table: Tensor, *, out: Tensor) -> Tensor:
    """Translate columns of a row to slots of the pool: table[column // 64] * 64 + column % 64.

    Columns may have been overwritten by another stream, so they are clamped to the table: no read
    leaves it. Whether a slot lies in the pool is up to the table's entries; whoever reads by slots
    clamps them, as `kernels.attend` does.
    """
    last = page_table.shape[1] * PAGE_TOKENS - 1
    column, again = columns.clamp(0, last), columns.clamp(0, last)
    page = column // PAGE_TOKENS
    slots = page_table.gather(1, page.long()) * PAGE_TOKENS + again % PAGE_TOKENS
    return out.copy_(torch.where(columns < 0, -1, slots))


class KeptBuffers:
    """Buffers that live as long as the variant, keyed by what they are for and their shape."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, tuple[int, ...], torch.dtype], Tensor] = {}

    def get(self, device: Device, purpose: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return the buffer, made outside any graph's memory on first use."""
        key = (purpose, tuple(shape), dtype)
        if key not in self._kept:
            self._kept[key] = torch.empty(key[1], dtype=dtype, device=device.torch_device)
        return self._kept[key]

    @property
    def size_bytes(self) -> int:
        """What the buffers cost."""
        return sum(buffer.nbytes for buffer in self._kept.values())
