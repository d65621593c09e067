"""The same index logits as other people would write them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor

from payload.cache import layout

Logits = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def eager(q: Tensor, weights: Tensor, k_pages: Tensor, page_ids: Tensor) -> Tensor:
    """Return scores `[B, P * 64]` by gather, batched bf16 product, relu and weighted sum."""
    keys, scales = layout.gather_pages(k_pages, page_ids)
    dots = torch.bmm(keys.to(torch.bfloat16), q.to(torch.bfloat16).transpose(1, 2))  # [B, S, H]
    totals = (dots.relu().float() * weights.unsqueeze(1)).sum(2)
    return totals if scales is None else totals * scales


def compiled() -> Logits:
    """Return `eager` behind torch.compile, for one static shape."""
    return torch.compile(eager, dynamic=False)


def deep_gemm() -> str:
    """Say whether DeepGEMM's paged kernel can be had here."""
    found = importlib.util.find_spec("deep_gemm")
    return "installed, not driven" if found else "not installed, and nothing can be installed here"
