"""Index keys in fp8 with a scale per token, unless SGLANG_DSV4_BF16_INDEX_K=1."""

from __future__ import annotations

from payload.cache.contract import CacheParts, PlainCache
from payload.cache.layout import KeyFormat

NAME = "fp8"


def build(parts: CacheParts) -> PlainCache:
    """Return the variant."""
    return PlainCache(parts, KeyFormat.FP8)
