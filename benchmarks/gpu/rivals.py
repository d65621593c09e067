"""The same index logits as other people would write them."""

from __future__ import annotations

import importlib
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


def deep_gemm(
    q: Tensor, weights: Tensor, k_pages: Tensor, page_table: Tensor, lengths: Tensor
) -> Callable[[], Tensor]:
    """Return a call of DeepGEMM's paged fp8 kernel, with a plan of how its programs share the work.

    Its pages are laid out as ours: the values of 64 tokens, then their scales.

    Raises:
        ImportError: it is not installed (it is as `deep_gemm` in the wheel `sgl-deep-gemm`).
    """
    library = importlib.import_module("deep_gemm")
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    fused = k_pages.view(k_pages.shape[0], layout.PAGE_TOKENS, 1, -1)
    shape = (q.unsqueeze(1), fused, weights, lengths.unsqueeze(1), page_table)
    plan = library.get_paged_mqa_logits_metadata(shape[3], layout.PAGE_TOKENS, processors)
    columns = page_table.shape[1] * layout.PAGE_TOKENS

    def call() -> Tensor:
        logits: Tensor = library.fp8_paged_mqa_logits(*shape, plan, columns)
        return logits

    return call


def has_deep_gemm() -> bool:
    """Say whether DeepGEMM can be imported here."""
    return importlib.util.find_spec("deep_gemm") is not None
