"""Constructed weights: codes of +-1 and signed permutations, so that every product is exact.

Two codes of 128 random signs agree by 0 +- 11; a code agrees with itself by 128. A query that is
the code of a position therefore finds that position among thousands, with a margin that bf16 and
fp8 cannot touch (both hold +-1 exactly), and a softmax over the scores returns its value exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from payload.engine.config import ModelConfig

LIFTS = 4  # copies of a code in the width of the dense layers


@dataclass(frozen=True)
class Weights:
    """All parameters, float32 unless said otherwise.

    Attributes:
        word: `[V, D]`, a code per token; also the output head.
        position: `[T, D]`, a code per position.
        rotate: per layer `[D, D]`: positions have other codes in each layer.
        lift: `[D, W]`: the code, LIFTS times, differently rotated.
        gate_in, gate: `[D, G]` and `[G, G]`: a share of the code, for the heads' weights.
        query_heads: per layer `[W, H * D]`: each head looks at its share of the code.
        dense: `depth` signed permutations `[W, W]`, the same in all layers.
        query_last, query_before: per layer `[W, D]`: the attention's query out of the last two
            dense results.
    """

    word: Tensor
    position: Tensor
    rotate: tuple[Tensor, ...]
    lift: Tensor
    gate_in: Tensor
    gate: Tensor
    query_heads: tuple[Tensor, ...]
    dense: tuple[Tensor, ...]
    query_last: tuple[Tensor, ...]
    query_before: tuple[Tensor, ...]

    @property
    def size_bytes(self) -> int:
        """Memory of all parameters."""
        sizes = 0
        for value in vars(self).values():
            sizes += sum(part.nbytes for part in (value if isinstance(value, tuple) else (value,)))
        return sizes


def construct(
    config: ModelConfig, *, vocabulary: int, positions: int, device: torch.device
) -> Weights:
    """Return the weights for a model of `config`.

    Raises:
        ValueError: the shapes don't allow the construction.
    """
    dim, width = config.code_dim, config.width
    divides = dim % config.heads == 0 and width % config.splits == 0
    if width != LIFTS * dim or not divides or config.depth < 2:
        rules = f"width is {LIFTS} x code_dim, heads and splits divide them, depth is at least 2"
        raise ValueError(f"{rules}: {config}")
    draw = torch.Generator().manual_seed(config.seed)
    word, position = _signs(vocabulary, dim, draw), _signs(positions, dim, draw)
    rotate = tuple(_signed_permutation(dim, draw) for _ in range(config.layers))
    lift = torch.cat([_signed_permutation(dim, draw) for _ in range(LIFTS)], dim=1)
    dense = tuple(_signed_permutation(width, draw) for _ in range(config.depth))
    before, last = _products(width, dense)
    down = lift.t() / LIFTS
    weights = Weights(
        word=word,
        position=position,
        rotate=rotate,
        lift=lift,
        gate_in=_signed_permutation(dim, draw)[:, : config.gate],
        gate=_signed_permutation(config.gate, draw),
        query_heads=tuple(_heads(down @ turn, config.heads) for turn in rotate),
        dense=dense,
        query_last=tuple(last.t() @ down @ turn / 2 for turn in rotate),
        query_before=tuple(before.t() @ down @ turn / 2 for turn in rotate),
    )
    return _moved(weights, device)


def _signs(rows: int, columns: int, draw: torch.Generator) -> Tensor:
    return torch.randint(0, 2, (rows, columns), generator=draw).float() * 2 - 1


def _signed_permutation(size: int, draw: torch.Generator) -> Tensor:
    matrix = torch.zeros(size, size)
    signs = _signs(1, size, draw)[0]
    matrix[torch.arange(size), torch.randperm(size, generator=draw)] = signs
    return matrix


def _products(width: int, dense: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return the product of all dense layers but the last, and of all."""
    before = last = torch.eye(width)
    for layer in dense:
        before, last = last, last @ layer
    return before, last


def _heads(project: Tensor, heads: int) -> Tensor:
    """Return `[W, H * D]`: head h sees its own D / H values of the code, and zeros."""
    dim = project.shape[1]
    owner = torch.arange(dim) // (dim // heads)
    mask = (owner.unsqueeze(0) == torch.arange(heads).unsqueeze(1)).float()  # [H, D]
    return (project.unsqueeze(1) * mask.unsqueeze(0)).flatten(1)


def _moved(weights: Weights, device: torch.device) -> Weights:
    def move(value: Tensor) -> Tensor:
        return value.to(device).contiguous()

    def move_all(values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(move(value) for value in values)

    return Weights(
        word=move(weights.word),
        position=move(weights.position),
        rotate=move_all(weights.rotate),
        lift=move(weights.lift),
        gate_in=move(weights.gate_in),
        gate=move(weights.gate),
        query_heads=move_all(weights.query_heads),
        dense=move_all(weights.dense),
        query_last=move_all(weights.query_last),
        query_before=move_all(weights.query_before),
    )
