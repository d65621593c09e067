"""Index keys in fp8 with a scale per token, unless SGLANG_DSV4_BF16_INDEX_K=1.

SGLANG_DSV4_IDXK_CANARY=1 adds the canary.
"""

from __future__ import annotations

from payload.cache.canary import GuardedCache
from payload.cache.contract import CacheParts, PlainCache
from payload.cache.layout import KeyFormat

NAME = "fp8"


def build(parts: CacheParts) -> PlainCache:
    """Return the variant."""
    cache = GuardedCache if parts.flags.idxk_canary is True else PlainCache
    return cache(parts, KeyFormat.FP8)
