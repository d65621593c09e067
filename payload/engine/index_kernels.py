"""Which kernels the indexer runs on: Triton or plain PyTorch on a GPU, row by row on a CPU."""

from __future__ import annotations

import importlib
from types import ModuleType

from torch import Tensor

from payload.device.contract import Device
from payload.flags import Flags
from payload.indexer import reference, rows
from payload.indexer.contract import IndexerParts


def index_parts(device: Device, flags: Flags) -> IndexerParts:
    """Return the indexer's kernels: Triton on a GPU unless the flag says no, else by rows.

    Raises:
        ValueError: the flag asks for Triton where there is no GPU.
    """
    if device.torch_device.type != "cuda":
        if flags.triton_indexer:
            raise ValueError("SGLANG_DSV4_TRITON_INDEXER=1 needs a GPU")
        return IndexerParts(score=rows.index_logits, select=rows.select_topk)
    if flags.triton_indexer is False:
        return _parts(reference, reference)
    # Triton takes a second to import, and a CPU has no use for it.
    kernel = importlib.import_module("payload.indexer.kernel")
    return _parts(kernel, importlib.import_module("payload.indexer.select_bisect"))


def _parts(score: ModuleType, select: ModuleType) -> IndexerParts:
    def select_topk(logits: Tensor, lengths: Tensor, *, out: Tensor) -> None:
        select.select_topk(logits, lengths, out.shape[1], out=out)

    return IndexerParts(score=score.index_logits, select=select_topk)
