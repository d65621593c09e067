"""The indexer on a CPU: one row after another, as thread blocks take them on a GPU.

Same contract as `payload.indexer.reference`, and faster where rows are much shorter than the
table: only a row's own pages are read, and its scores stay in the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from payload.cache import layout
from payload.indexer import reference


def index_logits(
    q: Tensor,
    weights: Tensor,
    k_pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    *,
    out: Tensor,
) -> Tensor:
    """Score every token of every row's context into `out` and return it.

    Shapes as in `reference.index_logits`; columns at or past a row's length keep what they held.
    """
    pages, scales = layout.planes(k_pages)
    wide_q = q.to(torch.float32)
    columns = min(out.shape[1], page_table.shape[1] * layout.PAGE_TOKENS)
    for row, length in enumerate(lengths.clamp(max=columns).tolist()):
        if length <= 0:
            continue
        page_ids = page_table[row, : -(-length // layout.PAGE_TOKENS)]
        keys = _widen(pages, page_ids).flatten(0, 1)[:length]  # [S, D]
        dots = torch.mm(wide_q[row], keys.t()).relu_()  # [H, S]
        total = torch.mv(dots.t(), weights[row])
        if scales is not None:
            total *= scales.index_select(0, page_ids).flatten()[:length]
        out[row, :length] = total
    return out


def select_topk(logits: Tensor, lengths: Tensor, *, out: Tensor) -> Tensor:
    """Choose each row's `out.shape[1]` best columns, as `reference.select_topk` does.

    A row is read once, into a copy, and all rows are written at once, as by programs that run side
    by side: what another stream writes meanwhile can't make it fail.
    """
    chosen = torch.full(out.shape, reference.EMPTY, dtype=torch.int32)
    for row, length in enumerate(lengths.tolist()):
        scores = logits[row, : max(length, 0)].clone()
        _choose(scores, out=chosen[row])
    return out.copy_(chosen)


def _choose(scores: Tensor, *, out: Tensor) -> None:
    """Write the columns of the best scores `[S]` into `out[k]`, and leave the rest of it."""
    k = min(out.shape[0], scores.shape[0])
    if scores.isnan().any():
        length = torch.tensor([scores.shape[0]])
        reference.select_topk(scores.unsqueeze(0), length, k, out=out[:k].unsqueeze(0))
        return
    # Stable, so that among equal scores the smaller column comes first.
    out[:k] = scores.sort(descending=True, stable=True).indices[:k]


def _e4m3_values() -> Tensor:
    """Return what each of the 256 bytes means as float8_e4m3fn."""
    return torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).to(torch.float32)


def _widen(pages: Tensor, page_ids: Tensor) -> Tensor:
    """Return the chosen pages in float32; fp8 by table, ten times faster than by conversion."""
    if pages.dtype is not torch.float8_e4m3fn:
        return pages.index_select(0, page_ids).to(torch.float32)
    read = pages.view(torch.uint8).index_select(0, page_ids)
    return E4M3_VALUES.index_select(0, read.flatten().int()).view(read.shape)


E4M3_VALUES = _e4m3_values()
