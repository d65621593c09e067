"""What a cache variant is: pools of pages, one of index keys and one of KV for each layer.

Page 0 belongs to nobody: padded rows of a captured batch write there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from payload.cache import layout
from payload.cache.layout import KeyFormat
from payload.flags import Flags

PADDING_PAGE = 0


@dataclass(frozen=True)
class CacheParts:
    """What a variant is built from.

    Attributes:
        layers: how many pools of each kind.
        pages: pages of a pool, the padding page included.
        index_dim: values of an index key.
        kv_dim: values of a token's K and V together.
        flags: the process's flags.
        device: where the pools lie.
    """

    layers: int
    pages: int
    index_dim: int
    kv_dim: int
    flags: Flags
    device: torch.device


@dataclass(frozen=True)
class Pools:
    """The pages.

    Attributes:
        index_keys: per layer, as `payload.cache.layout` says.
        kv: per layer `[pages, 64, kv_dim]` bf16.
    """

    index_keys: tuple[Tensor, ...]
    kv: tuple[Tensor, ...]

    @property
    def size_bytes(self) -> int:
        """Memory of all pools."""
        return sum(pool.nbytes for pool in (*self.index_keys, *self.kv))


@dataclass(frozen=True)
class StrayWrite:
    """A write outside the pages that a step may write.

    Attributes:
        layer: whose index-K pool.
        page: the page that changed.
    """

    layer: int
    page: int


class Cache(Protocol):
    """A variant."""

    @property
    def pools(self) -> Pools:
        """The pages."""
        ...

    @property
    def key_format(self) -> KeyFormat:
        """How index keys are kept."""
        ...

    def expect(self, pages: Sequence[int]) -> None:
        """Allow writes to these pages until the next `verify`, beside those allowed before."""
        ...

    def verify(self) -> tuple[StrayWrite, ...]:
        """Return writes to other pages since the last call; nothing if the cache does not look."""
        ...


def allocate(parts: CacheParts, key_format: KeyFormat) -> Pools:
    """Return zeroed pools."""
    where = parts.device
    index = [
        layout.allocate(parts.pages, parts.index_dim, key_format, device=where)
        for _ in range(parts.layers)
    ]
    kv = [
        layout.allocate(parts.pages, parts.kv_dim, KeyFormat.BF16, device=where)
        for _ in range(parts.layers)
    ]
    return Pools(tuple(index), tuple(kv))


def chosen_format(flags: Flags, default: KeyFormat) -> KeyFormat:
    """Return the format of index keys: the flag's if it is set, else the variant's."""
    if flags.bf16_index_k is None:
        return default
    return KeyFormat.BF16 if flags.bf16_index_k else KeyFormat.FP8


class PlainCache:
    """Pools that nobody watches."""

    def __init__(self, parts: CacheParts, default: KeyFormat) -> None:
        self.key_format = chosen_format(parts.flags, default)
        self.pools = allocate(parts, self.key_format)

    def expect(self, pages: Sequence[int]) -> None:
        """Do nothing."""

    def verify(self) -> tuple[StrayWrite, ...]:
        """Return nothing."""
        return ()
