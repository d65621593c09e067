"""The canary: which index-K pages changed although no row may write them.

A shadow of every pool is kept. After a step each page is compared with its shadow, byte for byte;
pages that the step may write are taken over instead. A write by a wrong address therefore shows
after the replay that made it, with its layer and page, whatever it wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from payload.cache.contract import CacheParts, PlainCache, StrayWrite
from payload.cache.layout import KeyFormat


class GuardedCache(PlainCache):
    """Pools that are compared with what they should hold after each step."""

    def __init__(self, parts: CacheParts, default: KeyFormat) -> None:
        super().__init__(parts, default)
        self._shadows = tuple(pool.clone() for pool in self.pools.index_keys)
        self._allowed: set[int] = set()

    def expect(self, pages: Sequence[int]) -> None:
        """Allow writes to these pages until the next `verify`, beside those allowed before."""
        self._allowed.update(pages)

    def verify(self) -> tuple[StrayWrite, ...]:
        """Return writes to other pages since the last call, each of them once."""
        allowed = torch.tensor(sorted(self._allowed), dtype=torch.int64)
        self._allowed.clear()
        pairs = zip(self.pools.index_keys, self._shadows, strict=True)
        return tuple(
            StrayWrite(layer, page)
            for layer, (pool, shadow) in enumerate(pairs)
            for page in _compare(pool, shadow, allowed.to(pool.device))
        )


def _compare(pool: Tensor, shadow: Tensor, allowed: Tensor) -> list[int]:
    """Return the changed pages that are not allowed, and make the shadow equal to the pool."""
    shadow[allowed] = pool[allowed]
    words, kept = _words(pool), _words(shadow)
    changed = (words != kept).any(dim=1).nonzero().flatten()
    shadow[changed] = pool[changed]
    return [int(page) for page in changed]


def _words(pool: Tensor) -> Tensor:
    """Return a pool's pages as rows of 64-bit words, whatever they hold: NaN equals itself here."""
    return pool.view(pool.shape[0], -1).view(torch.int64)
