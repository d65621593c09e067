"""The engine's sizes, fixed for the life of the process."""

from __future__ import annotations

from dataclasses import dataclass

from payload.cache.layout import PAGE_TOKENS

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128)


SPLIT_ROWS = 8  # a smaller batch is multiplied in one piece
LAYERS = 4  # three follow a pointer each, the last one reads the token


@dataclass(frozen=True)
class ModelConfig:
    """Shapes of the glass box.

    Attributes:
        code_dim: values of a code vector, and of an index key, a K and a V.
        heads: index heads.
        width: of the dense layers that make the attention's query.
        gate: values of the gate that weighs the heads.
        depth: how many dense layers the main stream runs beside the indexer; 0 = to be measured.
        splits: parts in which the query is summed (split-K) for SPLIT_ROWS rows or more.
        norm_groups: parts of a query whose lengths are kept.
        top_k: positions that attention sees.
        seed: of the code vectors.
    """

    code_dim: int = 128
    heads: int = 8
    width: int = 512
    gate: int = 96
    depth: int = 12
    splits: int = 1
    norm_groups: int = 1
    top_k: int = 64
    seed: int = 20_260_101

    @property
    def layers(self) -> int:
        """Layers, each with an indexer and caches of its own."""
        return LAYERS

    @property
    def score_scale(self) -> float:
        """What a head's score is multiplied by, as in production."""
        return float((self.code_dim * self.heads) ** -0.5)


def default_model(device_type: str) -> ModelConfig:
    """Return the shapes for `cpu` or `cuda`; depth 0 lets the machine decide.

    A GPU affords production's 64 index heads, and has more processors to fill by split-K. There
    the columns chosen ascend, and what a layer looks for stands last: with two lengths a query
    the statistic that nobody reads covers all columns of a row, as it must to do any harm.
    """
    if device_type == "cuda":
        return ModelConfig(depth=0, heads=64, splits=4, norm_groups=2)
    return ModelConfig(depth=0)


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of the engine.

    Attributes:
        model: the model's shapes.
        max_batch: sequences that run at once.
        context_tokens: the longest context: prompt, program and reply.
        cache_pages: pages of each pool, the padding page included.
        typical_tokens: the context for which the two branches are balanced.
    """

    model: ModelConfig = ModelConfig()
    max_batch: int = 48
    context_tokens: int = 4096
    cache_pages: int = 1024
    typical_tokens: int = 640

    def __post_init__(self) -> None:
        """Refuse sizes that some request would only find out about.

        Raises:
            ValueError: a size that cannot be.
        """
        for name, least in (("max_batch", 1), ("cache_pages", 2), ("typical_tokens", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}: {getattr(self, name)}")
        if self.model.depth < 0:
            raise ValueError(f"depth must be at least 0: {self.model.depth}")
        if self.context_tokens < PAGE_TOKENS or self.context_tokens % PAGE_TOKENS:
            raise ValueError(
                f"context_tokens must be a multiple of {PAGE_TOKENS}: {self.context_tokens}"
            )

    @property
    def pages_per_row(self) -> int:
        """Columns of a page table."""
        return self.context_tokens // PAGE_TOKENS

    @property
    def buckets(self) -> tuple[int, ...]:
        """Batch sizes to capture, ascending; the largest is `max_batch`."""
        return (*(size for size in BUCKETS if size < self.max_batch), self.max_batch)
