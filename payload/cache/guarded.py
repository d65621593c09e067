"""Index keys in bf16 under the canary, unless SGLANG_DSV4_IDXK_CANARY=0.

SGLANG_DSV4_BF16_INDEX_K=0 keeps them in fp8.
"""

from __future__ import annotations

from payload.cache.canary import GuardedCache
from payload.cache.contract import CacheParts, PlainCache
from payload.cache.layout import KeyFormat

NAME = "guarded"


def build(parts: CacheParts) -> PlainCache:
    """Return the variant."""
    cache = PlainCache if parts.flags.idxk_canary is False else GuardedCache
    return cache(parts, KeyFormat.BF16)
