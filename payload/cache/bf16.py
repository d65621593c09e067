"""Index keys in bf16, as found, unless SGLANG_DSV4_BF16_INDEX_K=0."""

from __future__ import annotations

from payload.cache.contract import CacheParts, PlainCache
from payload.cache.layout import KeyFormat

NAME = "bf16"


def build(parts: CacheParts) -> PlainCache:
    """Return the variant."""
    return PlainCache(parts, KeyFormat.BF16)
