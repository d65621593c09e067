"""The indexer in plain PyTorch: what every kernel and variant is measured against.

For row b and token s of its context

    score(b, s) = scale(s) * sum over heads h of weights[b, h] * relu(q[b, h] . k[s])

where `scale` is 1 for plain pages. The relu comes before the weights, and weights may be
negative. As in production, fp8 queries carry no scale: `quantise_queries` folds it into the
weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from payload.cache import layout

EMPTY = -1


def quantise_queries(q: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return `q[B, H, D]` in e4m3 and `weights[B, H]` with each head's scale folded in.

    The fold is exact because relu(c * x) = c * relu(x) for c > 0.
    """
    values, scales = layout.quantise(q)
    return values, weights * scales


def scores(
    q: Tensor,
    weights: Tensor,
    keys: Tensor,
    scales: Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the scores `[B, S]` of contiguous keys, computed in `dtype`.

    Args:
        q: `[B, H, D]`, any float dtype.
        weights: `[B, H]`.
        keys: `[B, S, D]`, any float dtype, unscaled.
        scales: `[B, S]`, or None for 1.
        dtype: float32, or float64 for the truth that kernels are held against.
    """
    dots = torch.bmm(keys.to(dtype), q.to(dtype).transpose(1, 2))  # [B, S, H]
    totals = torch.bmm(dots.relu_(), weights.to(dtype).unsqueeze(2)).squeeze(2)  # [B, S]
    return totals if scales is None else totals * scales.to(dtype)


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

    Args:
        q: `[B, H, D]`; float8_e4m3fn with its scale folded into the weights, or a plain float.
        weights: `[B, H]` float32.
        k_pages: plain `[pages, 64, D]` or fp8 `[pages, bytes]`, see `payload.cache.layout`.
        page_table: `[B, P]` int32; slots behind a row's last page may hold garbage.
        lengths: `[B]` int32; 0 or less for a padded row; more than P * 64 or max_len means all
            there is room for.
        out: `[B, max_len]` float32; columns at or past a row's length keep what they held.
    """
    columns = min(out.shape[1], page_table.shape[1] * layout.PAGE_TOKENS)
    column = torch.arange(columns, device=out.device)
    valid = column < lengths.unsqueeze(1)  # [B, columns]
    page_count = -(-columns // layout.PAGE_TOKENS)
    first_column = column[:: layout.PAGE_TOKENS]
    used = first_column < lengths.unsqueeze(1)  # [B, page_count]
    page_ids = torch.where(used, page_table[:, :page_count], 0).long()
    keys, scales = layout.gather_pages(k_pages, page_ids)
    found = scores(q, weights, keys, scales)[:, :columns]
    out[:, :columns] = torch.where(valid, found, out[:, :columns])
    return out


def rank_keys(logits: Tensor, lengths: Tensor) -> Tensor:
    """Return int64 keys `[B, S]` that order the columns of each row strictly; invalid ones are -1.

    A larger score ranks higher; among equal scores the smaller column does; -0.0 equals 0.0, and
    NaN counts as -inf, so that it is never preferred to a number.
    """
    column = torch.arange(logits.shape[1], device=logits.device)
    numbers = torch.where(logits.isnan(), float("-inf"), logits) + 0.0  # the sum ends -0.0
    bits = numbers.contiguous().view(torch.int32).long()
    ordered = torch.where(bits < 0, -1 - (bits & 0x7FFFFFFF), bits) + (1 << 31)  # < 2**32
    keys = (ordered << 31) | (0x7FFFFFFF - column)
    return torch.where(column < lengths.unsqueeze(1), keys, -1)


def select_topk(logits: Tensor, lengths: Tensor, k: int, *, out: Tensor | None = None) -> Tensor:
    """Return the columns of each row's k largest scores: `[B, k]` int32, -1 where there are fewer.

    The indices are a set: their order means nothing. `rank_keys` defines ties, so the set is
    unique. Columns at or past the length are never chosen, whatever they hold. The memory of
    `logits` is read once; the rest works on a private copy, so a racing writer can make the
    answer wrong but nothing can fail on it.

    Args:
        logits: `[B, S]` float32.
        lengths: `[B]` int32; 0 for a padded row, whose answer is all -1.
        k: how many to choose; may exceed S.
        out: `[B, k]` int32 to write into and return; allocated when None.
    """
    keys = rank_keys(logits.clone(), lengths)
    best = keys.topk(min(k, keys.shape[1]), dim=1, sorted=False).values
    columns = torch.where(best < 0, EMPTY, 0x7FFFFFFF - (best & 0x7FFFFFFF)).int()
    if out is None:
        out = torch.empty((logits.shape[0], k), dtype=torch.int32, device=logits.device)
    out[:, columns.shape[1] :] = EMPTY
    out[:, : columns.shape[1]] = columns
    return out
