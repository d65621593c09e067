"""Random index problems, for the tests and benches of every kernel, and their true scores.

A case is as hostile as the contract allows: pages lie in random order, table slots behind a row's
last page hold garbage, and whatever lies outside the contexts is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from payload.cache import layout
from payload.cache.layout import PAGE_TOKENS, KeyFormat
from payload.indexer import reference

FILL_PAGES = 16384  # a bound on the scratch memory of filling a large pool


@dataclass(frozen=True)
class Case:
    """The inputs of one `index_logits` call, and room for its output.

    Attributes:
        q: `[B, H, D]` in the dtype that goes with the pages.
        weights: `[B, H]` float32, of both signs.
        k_pages: the pool.
        page_table: `[B, P]` int32.
        lengths: `[B]` int32.
        columns: width of the output, at least the longest length.
    """

    q: Tensor
    weights: Tensor
    k_pages: Tensor
    page_table: Tensor
    lengths: Tensor
    columns: int

    def poisoned_out(self) -> Tensor:
        """Return an output `[B, columns]` full of NaN."""
        shape = (self.q.shape[0], self.columns)
        return torch.full(shape, float("nan"), device=self.q.device)

    def valid(self) -> Tensor:
        """Return which outputs `[B, columns]` a call must write."""
        column = torch.arange(self.columns, device=self.lengths.device)
        return column < self.lengths.unsqueeze(1)

    def truth(self) -> Tensor:
        """Return the scores `[B, columns]` in float64, NaN at and past each length."""
        out = self.poisoned_out().double()
        for row, length in enumerate(self.lengths.tolist()):
            if length == 0:
                continue
            pages = self.page_table[row : row + 1, : -(-length // PAGE_TOKENS)].long()
            values, scales = layout.gather_pages(self.k_pages, pages)
            one = slice(row, row + 1)
            found = reference.scores(
                self.q[one], self.weights[one], values, scales, dtype=torch.float64
            )
            out[row, :length] = found[0, :length]
        return out


def fill(pool: Tensor, generator: torch.Generator) -> None:
    """Fill a pool with normal keys, a part at a time."""
    dim = layout.planes(pool).values.shape[2]
    for part in pool.split(FILL_PAGES):
        keys = torch.randn(
            (part.shape[0], PAGE_TOKENS, dim), generator=generator, device=pool.device
        )
        values, scales = layout.planes(part)
        if scales is None:
            values.copy_(keys)
            continue
        quantised, token_scales = layout.quantise(keys)
        values.view(torch.uint8).copy_(quantised.view(torch.uint8))
        scales.copy_(token_scales)


def poison(pool: Tensor, table: Tensor, lengths: Sequence[int]) -> None:
    """Make every key that belongs to no context NaN."""
    keep = torch.zeros((pool.shape[0], PAGE_TOKENS), dtype=torch.bool, device=pool.device)
    for row, length in enumerate(lengths):
        pages = table[row].long()
        full, rest = divmod(length, PAGE_TOKENS)
        keep[pages[:full]] = True
        keep[pages[full : full + 1], :rest] = True
    values, scales = layout.planes(pool)
    if scales is None:
        values[~keep] = float("nan")
        return
    values.view(torch.uint8)[~keep] = 0x7F  # NaN in e4m3
    scales[~keep] = float("nan")


def random_case(
    lengths: Sequence[int],
    key_format: KeyFormat,
    *,
    heads: int,
    dim: int,
    device: torch.device | str,
    columns: int | None = None,
    seed: int = 0,
    is_poisoned: bool = True,
) -> Case:
    """Return a case with the given context lengths, each row with pages of its own."""
    generator = torch.Generator(device).manual_seed(seed)
    columns = columns or max(*lengths, 1)
    row_pages = -(-columns // PAGE_TOKENS)
    batch = len(lengths)
    pool = layout.allocate(batch * row_pages + 1, dim, key_format, device=device)
    fill(pool, generator)
    order = torch.randperm(pool.shape[0], generator=generator, device=device)
    table = order[: batch * row_pages].view(batch, row_pages).int()
    if is_poisoned:
        poison(pool, table, lengths)
        for row, length in enumerate(lengths):
            table[row, -(-length // PAGE_TOKENS) :] = -(2**31) + 7
    q = torch.randn((batch, heads, dim), generator=generator, device=device)
    weights = torch.randn((batch, heads), generator=generator, device=device)
    if key_format is KeyFormat.FP8:
        q, weights = reference.quantise_queries(q, weights)
    else:
        q = q.to(pool.dtype)
    counts = torch.tensor(lengths, dtype=torch.int32, device=device)
    return Case(q, weights, pool, table, counts, columns)
