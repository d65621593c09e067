"""Index logits on a GPU: one Triton skeleton for plain and fp8 pages.

The contract is `payload.indexer.reference.index_logits`. A program owns a run of one row's
tokens, keeps the row's queries on chip and streams its keys through, each key read once. The
element type of a page comes with the pointer; fp8 pages differ in one constexpr, `SCALED`.

Names: `b_` a block's value, `o_` offsets, `m_` a mask, `i_` a program index.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from payload.cache import layout


@dataclass(frozen=True)
class LogitsTiling:
    """How the work is cut; every choice gives the same scores.

    Attributes:
        block_tokens: keys of one tile.
        stages: tiles in flight in the software pipeline.
        warps: warps of a program.
        programs: how many programs to aim at; more means a shorter run of tiles for each.
    """

    block_tokens: int
    stages: int
    warps: int
    programs: int


# The best of those that `python -m benchmarks.gpu.indexer --sweep` tries.
TILINGS = {
    torch.float32: LogitsTiling(block_tokens=64, stages=2, warps=4, programs=132 * 16),
    torch.bfloat16: LogitsTiling(block_tokens=64, stages=2, warps=4, programs=132 * 32),
    torch.float8_e4m3fn: LogitsTiling(block_tokens=128, stages=2, warps=4, programs=132 * 32),
}


@triton.jit
def _logits_kernel(
    q,  # [B, H, D]
    weights,  # [B, H] float32
    values,  # [pages, PAGE, D], rows of a page contiguous
    scales,  # [pages, PAGE] float32; unused unless SCALED
    page_table,  # [B, P] int32
    lengths,  # [B] int32
    out,  # [B, max_len] float32
    table_stride,
    out_stride,
    run_tokens,
    columns,  # what both a row of the page table and a row of scores have room for
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    VALUES_STRIDE: tl.constexpr,
    SCALES_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    SCALED: tl.constexpr,
    OPERAND: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_run = tl.program_id(0)
    i_row = tl.program_id(1).to(tl.int64)
    length = tl.minimum(tl.load(lengths + i_row), columns)
    first = i_run * run_tokens
    if first >= length:
        return
    o_h = tl.arange(0, H)
    o_d = tl.arange(0, D)
    b_q = tl.load(q + i_row * H * D + o_h[:, None] * D + o_d[None, :]).to(OPERAND)  # [H, D]
    b_w = tl.load(weights + i_row * H + o_h)  # [H]
    end = tl.minimum(first + run_tokens, length)
    for start in tl.range(first, end, BLOCK, num_stages=STAGES):
        o_s = start + tl.arange(0, BLOCK)
        # Columns past the length have no page: their table slots may hold anything.
        m_s = o_s < end
        b_page = tl.load(page_table + i_row * table_stride + o_s // PAGE, mask=m_s, other=0)
        b_page = b_page.to(tl.int64)
        o_k = b_page * VALUES_STRIDE + (o_s % PAGE) * D
        b_k = tl.load(values + o_k[:, None] + o_d[None, :], mask=m_s[:, None], other=0.0)
        b_dots = tl.dot(b_k.to(OPERAND), tl.trans(b_q), input_precision="ieee")  # [BLOCK, H]
        # A key that is NaN scores NaN, which is never chosen, and not 0 in the heads it spoils.
        b_dots = tl.maximum(b_dots, 0.0, propagate_nan=tl.PropagateNan.ALL)
        b_score = tl.sum(b_dots * b_w[None, :], axis=1)  # [BLOCK]
        if SCALED:
            b_score *= tl.load(scales + b_page * SCALES_STRIDE + o_s % PAGE, mask=m_s, other=0.0)
        tl.store(out + i_row * out_stride + o_s, b_score, mask=m_s)


OPERANDS = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float8_e4m3fn: tl.float8e4nv,
}


def _operand(dtype: torch.dtype) -> tl.dtype:
    """Return what the matrix product multiplies; widened, exactly, where it is interpreted."""
    # Triton's interpreter keeps bf16 as its bits and would multiply those as integers.
    compiled = isinstance(_logits_kernel, triton.JITFunction)
    return OPERANDS[dtype] if compiled else tl.float32


def _check(q: Tensor, weights: Tensor, pages: layout.Planes, tensors: tuple[Tensor, ...]) -> None:
    heads, dim = q.shape[1:]
    least_dim = max(16, 32 // q.dtype.itemsize)
    for name, size, least in (("heads", heads, 1), ("dim", dim, least_dim)):
        if size < least or size & (size - 1):
            raise ValueError(f"{name} must be a power of two and at least {least}: {size}")
    if pages.scales is None and q.dtype is not pages.values.dtype:
        raise ValueError(f"queries are {q.dtype} but plain pages hold {pages.values.dtype}")
    rows = [len(tensor) for tensor in (q, weights, *tensors)]
    if len(set(rows)) > 1 or weights.shape[1:] != (heads,):
        raise ValueError(
            "queries, weights, page table, lengths and logits must be of the same rows and heads:"
            f" {rows} rows, {tuple(weights.shape[1:])} weights for {heads} heads"
        )
    if pages.values.shape[-1] != dim:
        raise ValueError(f"queries have {dim} numbers, keys {pages.values.shape[-1]}")
    if weights.dtype is not torch.float32:
        raise ValueError(f"weights must be float32: {weights.dtype}")
    if not all(tensor.stride(-1) == 1 for tensor in (*tensors, pages.values)):
        raise ValueError("the last dimension of every tensor must be contiguous")
    if not (q.is_contiguous() and weights.is_contiguous()):
        raise ValueError("q and weights must be contiguous")


def index_logits(
    q: Tensor,
    weights: Tensor,
    k_pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    *,
    out: Tensor,
    tiling: LogitsTiling | None = None,
) -> Tensor:
    """Score every token of every row's context into `out` and return it.

    As `reference.index_logits`, and: H and D are powers of two, and D is at least 16, or 32 for
    fp8 queries (one step of the matrix units has 32 bytes); queries have the
    dtype of plain pages; for fp8 pages they are float8_e4m3fn as in production (one fp8 matrix
    product), or bf16, for which keys are widened on the fly. Columns at or past a row's length
    are neither read nor written. Nothing is allocated, so nothing can be shared by mistake.

    Raises:
        ValueError: a shape, dtype or stride the kernel was not written for.
    """
    pages = layout.planes(k_pages)
    _check(q, weights, pages, (page_table, lengths, out))
    batch, heads, dim = q.shape
    tiling = tiling or TILINGS[pages.values.dtype]
    block = tiling.block_tokens
    columns = min(out.shape[1], page_table.shape[1] * layout.PAGE_TOKENS)
    tiles = triton.cdiv(columns, block)
    tiles_per_run = max(triton.cdiv(tiles * batch, tiling.programs), 1)
    grid = (triton.cdiv(tiles, tiles_per_run), batch)
    _logits_kernel[grid](
        q,
        weights,
        pages.values,
        weights if pages.scales is None else pages.scales,
        page_table,
        lengths,
        out,
        page_table.stride(0),
        out.stride(0),
        tiles_per_run * block,
        columns,
        H=heads,
        D=dim,
        PAGE=layout.PAGE_TOKENS,
        VALUES_STRIDE=pages.values.stride(0),
        SCALES_STRIDE=0 if pages.scales is None else pages.scales.stride(0),
        BLOCK=block,
        SCALED=pages.scales is not None,
        OPERAND=_operand(q.dtype),
        STAGES=tiling.stages,
        num_warps=tiling.warps,
    )
    return out
