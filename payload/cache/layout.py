"""How cached keys lie in pages of 64 tokens: plain, or fp8 in two planes.

A plain page is `[64, D]` of a float dtype (bf16 in production: 16,384 bytes at D = 128).

An fp8 page is one row of bytes, block-planar as in production (8,448 bytes at D = 128):

    64 x D float8_e4m3fn values | 64 float32 scales

The planes lie one behind the other; a view of the row as `[64, D + 4]` is not the layout.
A key is `value * scale`, one scale per token. Slots number the tokens of a pool:
`slot = page * 64 + offset`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import torch
from torch import Tensor

PAGE_TOKENS = 64
SCALE_BYTES = 4
E4M3_MAX = 448.0


class KeyFormat(enum.Enum):
    """What a page holds; the value is the word used in flags and reports."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"


PLAIN_DTYPES = {KeyFormat.FP32: torch.float32, KeyFormat.BF16: torch.bfloat16}


class Planes(NamedTuple):
    """The two parts of a pool, as views that share its memory.

    Attributes:
        values: `[pages, 64, D]`, in the pool's dtype or float8_e4m3fn.
        scales: `[pages, 64]` float32 for fp8, None for plain pages.
    """

    values: Tensor
    scales: Tensor | None


def page_bytes(dim: int, key_format: KeyFormat) -> int:
    """Return the bytes of one page of 64 keys of `dim` values."""
    if key_format is KeyFormat.FP8:
        return PAGE_TOKENS * (dim + SCALE_BYTES)
    return PAGE_TOKENS * dim * PLAIN_DTYPES[key_format].itemsize


def allocate(
    pages: int, dim: int, key_format: KeyFormat, *, device: torch.device | str = "cpu"
) -> Tensor:
    """Return a zeroed pool: `[pages, 64, dim]`, or `[pages, page_bytes]` uint8 for fp8.

    Raises:
        ValueError: `dim` is no multiple of 4, so the scales of an fp8 page would not be aligned.
    """
    if key_format is not KeyFormat.FP8:
        return torch.zeros((pages, PAGE_TOKENS, dim), dtype=PLAIN_DTYPES[key_format], device=device)
    if dim % SCALE_BYTES:
        raise ValueError(f"dim must be a multiple of {SCALE_BYTES} for fp8 pages: {dim}")
    return torch.zeros((pages, page_bytes(dim, key_format)), dtype=torch.uint8, device=device)


def planes(pages: Tensor) -> Planes:
    """Return a pool's values and scales, without copying."""
    if pages.dtype is not torch.uint8:
        return Planes(pages, None)
    value_bytes = pages.shape[1] - PAGE_TOKENS * SCALE_BYTES
    values = pages[:, :value_bytes].view(torch.float8_e4m3fn)
    scales = pages[:, value_bytes:].view(torch.float32)
    dim = value_bytes // PAGE_TOKENS
    return Planes(values.view(pages.shape[0], PAGE_TOKENS, dim), scales)


def quantise(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return `keys[..., D]` as e4m3 values and one float32 scale per token (amax / 448).

    A row whose largest value is below 448 times the smallest normal float gets that float as its
    scale, so that a row of zeros reads back as zeros and no scale is denormal.
    """
    wide = keys.to(torch.float32)
    tiny = torch.finfo(torch.float32).tiny
    scales = (wide.abs().amax(dim=-1) / E4M3_MAX).clamp_min(tiny)
    return (wide / scales.unsqueeze(-1)).to(torch.float8_e4m3fn), scales


def dequantise(values: Tensor, scales: Tensor) -> Tensor:
    """Return the float32 keys that `quantise` stored, up to its rounding."""
    return values.to(torch.float32) * scales.unsqueeze(-1)


def store(pages: Tensor, slots: Tensor, keys: Tensor) -> None:
    """Write `keys[n, D]` into the slots `[n]` (int32 or int64), in place.

    Every slot must lie in the pool and occur once: padded rows of a captured batch need slots in
    a page that nobody reads. Nothing here waits for the device, so it can be captured.
    """
    page = torch.div(slots, PAGE_TOKENS, rounding_mode="floor").long()
    offset = slots.long() - page * PAGE_TOKENS
    values, scales = planes(pages)
    if scales is None:
        values[page, offset] = keys.to(values.dtype)
        return
    quantised, token_scales = quantise(keys)
    # As bytes: scatter by index is not implemented for float8 on every device.
    values.view(torch.uint8)[page, offset] = quantised.view(torch.uint8)
    scales[page, offset] = token_scales


def gather(pages: Tensor, slots: Tensor) -> Tensor:
    """Return the keys in `slots[...]` as `[..., D]`: float32 for fp8, else the pool's dtype."""
    page = torch.div(slots, PAGE_TOKENS, rounding_mode="floor").long()
    offset = slots.long() - page * PAGE_TOKENS
    values, scales = planes(pages)
    if scales is None:
        return values[page, offset]
    read = values.view(torch.uint8)[page, offset].view(torch.float8_e4m3fn)
    return dequantise(read, scales[page, offset])


def gather_pages(pages: Tensor, page_ids: Tensor) -> Planes:
    """Return whole pages, `page_ids[B, P]`, as values `[B, P*64, D]` and scales `[B, P*64]`.

    The values keep their dtype and are not scaled: score functions apply the scale last.
    """
    values, scales = planes(pages)
    if scales is None:
        return Planes(values[page_ids].flatten(1, 2), None)
    read = values.view(torch.uint8)[page_ids].view(torch.float8_e4m3fn)
    return Planes(read.flatten(1, 2), scales[page_ids].flatten(1, 2))
