"""Memory of one CPU stream, handed out by the rule of a GPU's caching allocator.

A block is free again the moment the last tensor over it is gone, and the next request that fits
gets it: the smallest free block first, split when it is too large, merged with free neighbours.
Nobody asks whether another stream still uses the bytes.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROUND_BYTES = 512  # the smallest block of PyTorch's CUDA allocator


@dataclass(frozen=True, order=True)
class Block:
    """A free range: ordered by size, then address, so that the best fit is the smallest."""

    size_bytes: int
    offset: int


class Arena:
    """A fixed range of memory, with best-fit blocks that return when their tensors die."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = mmap.mmap(-1, size_bytes)
        self._view = memoryview(self._memory)
        self._all = torch.frombuffer(self._view, dtype=torch.uint8)
        self._free = [Block(size_bytes, 0)]
        self.peak_bytes = 0

    @property
    def free_blocks(self) -> tuple[Block, ...]:
        """The free ranges, smallest first."""
        return tuple(sorted(self._free))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory; its block returns when no tensor uses its storage.

        Raises:
            MemoryError: no free block is large enough.
        """
        count = math.prod(shape)
        size_bytes = max(1, -(-count * dtype.itemsize // ROUND_BYTES)) * ROUND_BYTES
        block = self._take(size_bytes)
        handle = self._view[block.offset : block.offset + size_bytes]
        # The tensor's storage holds `handle`; views share the storage, so the last one frees it.
        weakref.finalize(handle, self._give_back, block).atexit = False
        return torch.frombuffer(handle, dtype=dtype, count=count).view(tuple(shape))

    def address_of(self, tensor: Tensor) -> int | None:
        """Return the tensor's byte offset in this arena, or None when it lies elsewhere."""
        offset = tensor.data_ptr() - self._all.data_ptr()
        return offset if 0 <= offset < self._all.numel() else None

    def alias(self, tensor: Tensor) -> Tensor:
        """Return the same bytes as a tensor that keeps no block alive, as a graph's address does.

        Raises:
            ValueError: the tensor does not lie in this arena.
        """
        offset = self.address_of(tensor)
        if offset is None:
            raise ValueError("the tensor does not lie in this arena")
        typed = self._all.view(tensor.dtype)
        start = offset // tensor.dtype.itemsize
        return typed.as_strided(tensor.size(), tensor.stride(), start)

    def _take(self, size_bytes: int) -> Block:
        fitting = [block for block in self._free if block.size_bytes >= size_bytes]
        if not fitting:
            raise MemoryError(f"no free block of {size_bytes} bytes in the arena")
        best = min(fitting)
        self._free.remove(best)
        if best.size_bytes > size_bytes:
            self._free.append(Block(best.size_bytes - size_bytes, best.offset + size_bytes))
        self.peak_bytes = max(self.peak_bytes, best.offset + size_bytes)
        return Block(size_bytes, best.offset)

    def _give_back(self, block: Block) -> None:
        start, end = block.offset, block.offset + block.size_bytes
        for other in list(self._free):
            if other.offset + other.size_bytes == start:
                start = other.offset
            elif other.offset == end:
                end = other.offset + other.size_bytes
            else:
                continue
            self._free.remove(other)
        self._free.append(Block(end - start, start))
