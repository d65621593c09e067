"""Whether the sizes of an engine fit into the machine, known before anything is allocated.

A system that promises more memory than it has would let the engine start, and kill it, or somebody
else, in the middle of a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from payload.cache import layout
from payload.cache.layout import PAGE_TOKENS, KeyFormat
from payload.engine.calibrate import TYPICAL_ROWS
from payload.engine.config import EngineConfig

MEMINFO = Path("/proc/meminfo")


def check_memory(config: EngineConfig, free_bytes: int) -> None:
    """Refuse sizes for which there is not enough memory.

    Raises:
        ValueError: which size takes the most of it, how much, and what to do.
    """
    shares = least_bytes(config)
    total = sum(shares.values())
    if total <= free_bytes:
        return
    name = max(shares, key=lambda one: shares[one])
    option = f"--{name.replace('_', '-')}"
    raise ValueError(
        f"{name} is too large: the engine would take at least {_gb(total)} of memory, "
        f"{_gb(shares[name])} of it for that, and {_gb(free_bytes)} are free; lower {option}"
    )


def least_bytes(config: EngineConfig) -> Mapping[str, int]:
    """Return what surely is allocated, by the size that asks for it."""
    shape = config.model
    per_page = layout.page_bytes(shape.code_dim, KeyFormat.FP8)
    per_page += layout.page_bytes(2 * shape.code_dim, KeyFormat.BF16)
    rows = min(TYPICAL_ROWS, config.max_batch)
    typical_pages = rows * -(-config.typical_tokens // PAGE_TOKENS)
    typical_bytes = typical_pages * layout.page_bytes(shape.code_dim, KeyFormat.FP32)
    return {
        "cache_pages": shape.layers * config.cache_pages * per_page,
        "context_tokens": config.context_tokens * shape.code_dim * 4,
        "max_batch": 2 * config.max_batch * config.pages_per_row * 4,
        "depth": shape.depth * shape.width**2 * 4,
        "typical_tokens": 0 if shape.depth else typical_bytes,
    }


def free_memory_bytes(where: torch.device) -> int:
    """Return the memory that an engine on this device can still have."""
    if where.type == "cuda":
        return torch.cuda.mem_get_info(where)[0]
    for line in MEMINFO.read_text(encoding="ascii").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    raise ValueError(f"{MEMINFO} does not say how much memory is available")


def _gb(size_bytes: int) -> str:
    return f"{size_bytes // 10**8 / 10:,.1f} GB"
