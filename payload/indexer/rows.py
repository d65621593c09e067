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
    for row, length in enumerate(lengths.tolist()):
        if length <= 0:
            continue
        page_ids = page_table[row, : -(-length // layout.PAGE_TOKENS)]
        keys = _widen(pages.index_select(0, page_ids)).flatten(0, 1)[:length]  # [S, D]
        dots = torch.mm(wide_q[row], keys.t()).relu_()  # [H, S]
        total = torch.mv(dots.t(), weights[row])
        if scales is not None:
            total *= scales.index_select(0, page_ids).flatten()[:length]
        out[row, :length] = total
    return out


def select_topk(logits: Tensor, lengths: Tensor, *, out: Tensor) -> Tensor:
    """Choose each row's `out.shape[1]` best columns, as `reference.select_topk` does."""
    k = out.shape[1]
    for row, length in enumerate(lengths.tolist()):
        if length <= 0:
            out[row] = reference.EMPTY
            continue
        one = slice(row, row + 1)
        reference.select_topk(logits[one, :length], lengths[one], k, out=out[one])
    return out


def _widen(pages: Tensor) -> Tensor:
    return pages.to(torch.float32)
