"""The model's kernels: each reads its inputs, writes `out`, and keeps no memory of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from payload.cache import layout

SHARPNESS = 0.5  # exp(-0.5 * 60) between the right position and the best wrong one


def lookup(table: Tensor, ids: Tensor, *, out: Tensor) -> Tensor:
    """`out[b] = table[ids[b]]`."""
    return torch.index_select(table, 0, ids, out=out)


def dense(x: Tensor, weight: Tensor, *, out: Tensor) -> Tensor:
    """`out = x @ weight`."""
    return torch.mm(x, weight, out=out)


def remember(
    own: Tensor, rotate: Tensor, value: Tensor, slots: Tensor, *, out: tuple[Tensor, Tensor]
) -> None:
    """Store the key `own @ rotate` and the value `[B, D]` in the slots of (index keys, KV)."""
    index_keys, kv = out
    keys = own @ rotate
    layout.store(index_keys, slots, keys)
    layout.store(kv, slots, torch.cat((keys, value), dim=1))


def head_queries(x: Tensor, weight: Tensor, *, out: Tensor) -> Tensor:
    """`out[b, h] = x[b] @ weight`, cut into heads, in the dtype of `out`."""
    return out.copy_(torch.mm(x, weight).view(out.shape))


def head_weights(x: Tensor, scale: float, *, out: Tensor) -> Tensor:
    """`out[b, h] = scale / rms(x[b])`, the same for every head."""
    norm = torch.rsqrt(x.square().mean(dim=1, keepdim=True).add_(1e-6))
    return out.copy_(norm.mul_(scale).expand_as(out))


def attention_query(
    last: Tensor,
    before: Tensor,
    w_last: Tensor,
    w_before: Tensor,
    *,
    out: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    """Project the dense results to queries of length sqrt(D), the second one by split-K.

    Args:
        last: `[B, W]`, the last dense result.
        before: `[B, W]`, the one before it.
        w_last: `[W, D]`, the projection of `last`.
        w_before: `[W, D]`, the projection of `before`.
        out: the queries `[B, D]`; room for the parts `[splits, B, D]`; the lengths `[B, G]` that
            G parts of each query had before, which nobody reads in inference; and room `[B, W]`,
            used up.
    """
    query, parts, norms, room = out
    splits, rows, dim = parts.shape
    total, length = room.view(-1)[: rows * dim].view(rows, dim), room.view(-1)[:rows].view(rows, 1)
    torch.mm(last, w_last, out=query)
    pieces = before.view(rows, splits, -1).transpose(0, 1)  # [splits, B, W / splits]
    torch.bmm(pieces, w_before.view(splits, -1, dim), out=parts)
    # into the room: a temporary would be one more block that two streams may share
    torch.sum(parts, dim=0, out=total)
    query.add_(total)
    torch.linalg.vector_norm(query.view(*norms.shape, -1), dim=2, out=norms)
    torch.linalg.vector_norm(query, dim=1, keepdim=True, out=length)
    query.mul_(dim**0.5).div_(length.add_(1e-6))


def attend(query: Tensor, kv: Tensor, slots: Tensor, *, out: Tensor) -> Tensor:
    """Attend to the chosen slots only.

    Args:
        query: `[B, D]`.
        kv: `[pages, 64, 2 * D]`, K before V.
        slots: `[B, k]` int32, -1 = empty.
        out: `[B, D]`; zeros where every slot is empty.
    """
    dim = query.shape[1]
    flat = kv.view(-1, kv.shape[2])
    chosen = slots.clamp(0, flat.shape[0] - 1)
    pairs = flat.index_select(0, chosen.flatten()).view(*slots.shape, 2 * dim).float()
    scores = torch.bmm(pairs[:, :, :dim], query.unsqueeze(2)).squeeze(2) * SHARPNESS  # [B, k]
    scores = scores.masked_fill(slots < 0, float("-inf"))
    shares = scores.softmax(dim=1).nan_to_num_(nan=0.0)
    return torch.bmm(shares.unsqueeze(1), pairs[:, :, dim:], out=out.unsqueeze(1)).squeeze(1)


def best_token(hidden: Tensor, word: Tensor, *, out: Tensor) -> Tensor:
    """`out[b]` = the token whose code agrees best with `hidden[b]`."""
    return out.copy_(torch.mm(hidden, word.t()).argmax(dim=1))
