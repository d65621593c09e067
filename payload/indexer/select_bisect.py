"""Top-k on a GPU by bisection, in a bounded number of passes over each row.

The contract is `payload.indexer.reference.select_topk`. Every column gets a 64-bit rank that orders
a row strictly (score first, then the smaller column), so "the k largest" is one set and the k-th
largest rank is found by deciding its bits from the top: count the ranks at or above a trial, keep
the bit if they are at least k. Long rows are thinned out first; four launches read them twice:

1. group maxima: a row is dealt into 2k groups of columns, and each group keeps its largest rank;
2. bound: the k-th largest of the maxima. At least k ranks reach it, about 1.4 k when the groups are
   as good as random (1 - 2^(-2k/S) of S columns);
3. candidates: every chunk lists its columns that reach the bound, in order;
4. pick: one program a row bisects its candidates, on chip, and writes the chosen columns in order.

If a row has more candidates than fit on chip (its best columns crowd into few groups), step 4
bisects the row itself: slower, and just as exact. Short rows need step 4 alone.

Nothing here is ever used as an address before it is checked against the buffer it points into,
so scores or workspace that somebody else overwrites meanwhile give wrong columns of the
row (or -1), never a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

DIRECT_COLUMNS = 8192  # rows up to here are picked from directly
GROUP_BLOCK = 64  # columns of one group block: 256 bytes, two full memory transactions
GROUP_ROWS = 32
MIN_GROUPS = 512
TILE = 4096
MAX_CHUNKS = 64


@dataclass(frozen=True)
class Cut:
    """How rows of `columns` scores are cut for a given k.

    Attributes:
        columns: scores in a row, S.
        k: how many are chosen.
        groups: column groups of a row, and as many candidates as fit on chip; a power of two.
        chunks: parts of a row whose candidates are listed apart; a power of two.
        chunk_columns: columns of a chunk, a multiple of the tile.
        segment: candidates a chunk can list.
    """

    columns: int
    k: int
    groups: int
    chunks: int
    chunk_columns: int
    segment: int

    @staticmethod
    def of(columns: int, k: int) -> Cut:
        """Return the cut for rows of `columns` scores."""
        groups = max(MIN_GROUPS, 2 * triton.next_power_of_2(k))
        chunks = min(MAX_CHUNKS, triton.next_power_of_2(triton.cdiv(columns, TILE)))
        chunk_columns = TILE * triton.cdiv(triton.cdiv(columns, TILE), chunks)
        return Cut(columns, k, groups, chunks, chunk_columns, min(chunk_columns, groups))

    @property
    def is_direct(self) -> bool:
        """Whether a row is short enough to be picked from without thinning."""
        return self.columns <= max(DIRECT_COLUMNS, self.groups)

    @property
    def capacity(self) -> int:
        """Ranks that the last step holds on chip."""
        return triton.next_power_of_2(self.columns) if self.is_direct else self.groups

    @property
    def pick_warps(self) -> int:
        """Warps of the last step, of which a row has one program."""
        return max(4 if self.is_direct else 8, min(16, self.capacity // 256))

    @property
    def vector(self) -> int:
        """Scores that can be loaded at once without reading past the end of a row."""
        return 4 if self.columns % 4 == 0 else 1

    @property
    def rank_bits(self) -> int:
        """Bits of a rank: 32 of the score, the rest of the column."""
        return 32 + (self.columns - 1).bit_length()


class Workspace(NamedTuple):
    """What one call writes between its launches; a call must not share it with another.

    Attributes:
        maxima: `[B, groups]` int64.
        bounds: `[B]` int64.
        candidates: `[B, chunks, segment]` int32.
        counts: `[B, chunks]` int32.
    """

    maxima: Tensor
    bounds: Tensor
    candidates: Tensor
    counts: Tensor

    @staticmethod
    def allocate(batch: int, columns: int, k: int, *, device: torch.device | str) -> Workspace:
        """Return an uninitialised workspace for rows of `columns` scores."""
        cut = Cut.of(columns, k)
        return Workspace(
            maxima=torch.empty((batch, cut.groups), dtype=torch.int64, device=device),
            bounds=torch.empty((batch,), dtype=torch.int64, device=device),
            candidates=torch.empty(
                (batch, cut.chunks, cut.segment), dtype=torch.int32, device=device
            ),
            counts=torch.empty((batch, cut.chunks), dtype=torch.int32, device=device),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all its buffers."""
        return sum(tensor.nbytes for tensor in self)


@triton.jit
def _ranks(b_score, o_column, m_valid, RANK_BITS: tl.constexpr):
    """Return int64 ranks, larger is better and no two equal; -1 where not valid."""
    COLUMN_BITS: tl.constexpr = RANK_BITS - 32
    bits = tl.where(b_score == 0.0, 0.0, b_score).to(tl.uint32, bitcast=True)
    ordered = tl.where(bits >> 31 == 1, ~bits, bits | 0x80000000)
    is_nan = b_score != b_score  # noqa: PLR0124 - Triton has no isnan
    ordered = tl.where(is_nan, 0, ordered)
    rank = (ordered.to(tl.int64) << COLUMN_BITS) | ((1 << COLUMN_BITS) - 1 - o_column)
    return tl.where(m_valid, rank, -1)


@triton.jit
def _load_ranks(row, o_column, length, VECTOR: tl.constexpr, RANK_BITS: tl.constexpr):
    """Return the ranks of a row's columns; those at or past the length are -1."""
    # A mask that is constant over VECTOR columns lets the compiler load that many at once.
    m_load = o_column < tl.cdiv(length, VECTOR) * VECTOR
    b_score = tl.load(row + o_column, mask=m_load, other=0.0)
    return _ranks(b_score, o_column, o_column < length, RANK_BITS)


@triton.jit
def _kth_largest(b_rank, k, RANK_BITS: tl.constexpr):
    """Return the k-th largest of the valid ranks, or 0 if there are no more than k."""
    bound = tl.zeros((), tl.int64)
    reaching = tl.sum((b_rank >= 0).to(tl.int32))
    bit = RANK_BITS - 1
    while (bit >= 0) & (reaching > k):
        trial = bound | (tl.full((), 1, tl.int64) << bit)
        count = tl.sum((b_rank >= trial).to(tl.int32))
        bound = tl.where(count >= k, trial, bound)
        reaching = tl.where(count >= k, count, reaching)
        bit -= 1
    return bound


@triton.jit
def _group_maxima_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    maxima,  # [B, GROUPS] int64
    logits_stride,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    VECTOR: tl.constexpr,
    RANK_BITS: tl.constexpr,
):
    """Deal a row's columns into groups like cards, and keep each group's largest rank."""
    BLOCKS: tl.constexpr = GROUPS // BLOCK
    i_block = tl.program_id(0)
    i_row = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + i_row)
    row = logits + i_row * logits_stride
    o_in_block = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -1, tl.int64)
    for first in range(0, tl.cdiv(length, GROUPS), ROWS):
        o_deal = first + tl.arange(0, ROWS)
        # Each deal starts five blocks further on, so that scores with a period of GROUPS spread.
        o_block = (i_block + 5 * o_deal) % BLOCKS
        o_column = (o_deal * GROUPS + o_block * BLOCK)[:, None] + o_in_block[None, :]
        b_rank = _load_ranks(row, o_column, length, VECTOR, RANK_BITS)  # [ROWS, BLOCK]
        best = tl.maximum(best, tl.max(b_rank, axis=0))
    tl.store(maxima + i_row * GROUPS + i_block * BLOCK + o_in_block, best)


@triton.jit
def _bound_kernel(
    maxima,  # [B, GROUPS] int64
    bounds,  # [B] int64
    k,
    GROUPS: tl.constexpr,
    RANK_BITS: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    b_rank = tl.load(maxima + i_row * GROUPS + tl.arange(0, GROUPS))
    tl.store(bounds + i_row, _kth_largest(b_rank, k, RANK_BITS))


@triton.jit
def _candidates_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    bounds,  # [B] int64
    candidates,  # [B, CHUNKS, SEGMENT] int32
    counts,  # [B, CHUNKS] int32
    logits_stride,
    CHUNK: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    RANK_BITS: tl.constexpr,
):
    i_chunk = tl.program_id(0)
    i_row = tl.program_id(1).to(tl.int64)
    i_segment = i_row * tl.num_programs(0) + i_chunk
    length = tl.load(lengths + i_row)
    bound = tl.load(bounds + i_row)
    row = logits + i_row * logits_stride
    end = tl.minimum((i_chunk + 1) * CHUNK, length)
    count = 0
    for first in range(i_chunk * CHUNK, end, BLOCK):
        o_column = first + tl.arange(0, BLOCK)
        m_reach = _load_ranks(row, o_column, end, VECTOR, RANK_BITS) >= bound
        o_place = count + tl.cumsum(m_reach.to(tl.int32), axis=0) - 1
        m_fits = m_reach & (o_place < SEGMENT)
        tl.store(candidates + i_segment * SEGMENT + o_place, o_column, mask=m_fits)
        count += tl.sum(m_reach.to(tl.int32))
    tl.store(counts + i_segment, count)


@triton.jit
def _listed(candidates, counts, i_row, o, LEVELS: tl.constexpr, SEGMENT: tl.constexpr):
    """Return the columns of the candidates numbered `o`, which of them exist, and how many do."""
    CHUNKS: tl.constexpr = 1 << LEVELS
    b_count = tl.load(counts + i_row * CHUNKS + tl.arange(0, CHUNKS))
    b_end = tl.cumsum(b_count, axis=0)
    total = tl.sum(b_count)
    i_chunk = tl.zeros_like(o)
    for level in tl.static_range(LEVELS):  # bisect for the first chunk that ends behind o
        i_half = i_chunk + (1 << (LEVELS - 1 - level))
        i_chunk = tl.where(o >= tl.gather(b_end, i_half - 1, axis=0), i_half, i_chunk)
    o_place = o - tl.gather(b_end - b_count, i_chunk, axis=0)
    m_listed = (o < total) & (o_place >= 0) & (o_place < SEGMENT)
    slots = candidates + (i_row * CHUNKS + i_chunk) * SEGMENT + o_place
    return tl.load(slots, mask=m_listed, other=0), m_listed, total


@triton.jit
def _emit(out_row, place, k, o_column, m_chosen):
    """Write the chosen columns behind `place` and return the next place, at most k."""
    o_place = place + tl.cumsum(m_chosen.to(tl.int32), axis=0) - 1
    tl.store(out_row + o_place, o_column, mask=m_chosen & (o_place < k))
    return tl.minimum(place + tl.sum(m_chosen.to(tl.int32)), k)


@triton.jit
def _pick_from_row(
    row,
    length,
    k,
    out_row,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    RANK_BITS: tl.constexpr,
):
    """Choose from a row in memory, one read of it for each bit of the bound."""
    bound = tl.zeros((), tl.int64)
    reaching = length
    bit = RANK_BITS - 1
    while (bit >= 0) & (reaching > k):
        trial = bound | (tl.full((), 1, tl.int64) << bit)
        count = 0
        for first in range(0, length, BLOCK):
            b_rank = _load_ranks(row, first + tl.arange(0, BLOCK), length, VECTOR, RANK_BITS)
            count += tl.sum((b_rank >= trial).to(tl.int32))
        bound = tl.where(count >= k, trial, bound)
        reaching = tl.where(count >= k, count, reaching)
        bit -= 1
    place = 0
    for first in range(0, length, BLOCK):
        o_column = first + tl.arange(0, BLOCK)
        b_rank = _load_ranks(row, o_column, length, VECTOR, RANK_BITS)
        place = _emit(out_row, place, k, o_column, b_rank >= bound)
    return place


@triton.jit
def _pick_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    candidates,  # [B, 1 << LEVELS, SEGMENT] int32; unused when DIRECT
    counts,  # [B, 1 << LEVELS] int32; unused when DIRECT
    out,  # [B, k] int32
    logits_stride,
    out_stride,
    k,
    CAPACITY: tl.constexpr,
    LEVELS: tl.constexpr,
    SEGMENT: tl.constexpr,
    DIRECT: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    RANK_BITS: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + i_row)
    row = logits + i_row * logits_stride
    out_row = out + i_row * out_stride
    o = tl.arange(0, CAPACITY)
    if DIRECT:
        o_column, m_valid, total = o, o < length, length
    else:
        o_column, m_listed, total = _listed(candidates, counts, i_row, o, LEVELS, SEGMENT)
        m_valid = m_listed & (o_column >= 0) & (o_column < length)
    if total <= CAPACITY:
        b_score = tl.load(row + o_column, mask=m_valid, other=0.0)
        b_rank = _ranks(b_score, o_column, m_valid, RANK_BITS)
        bound = _kth_largest(b_rank, k, RANK_BITS)
        place = _emit(out_row, 0, k, o_column, b_rank >= bound)
    else:
        place = _pick_from_row(row, length, k, out_row, BLOCK, VECTOR, RANK_BITS)
    for first in range(place, k, BLOCK):
        o_tail = first + tl.arange(0, BLOCK)
        tl.store(out_row + o_tail, -1, mask=o_tail < k)


def _thin_out(logits: Tensor, lengths: Tensor, cut: Cut, workspace: Workspace) -> None:
    """List each row's candidates in the workspace."""
    batch = logits.shape[0]
    maxima, bounds, candidates, counts = workspace
    _group_maxima_kernel[(cut.groups // GROUP_BLOCK, batch)](
        logits,
        lengths,
        maxima,
        logits.stride(0),
        GROUPS=cut.groups,
        BLOCK=GROUP_BLOCK,
        ROWS=GROUP_ROWS,
        VECTOR=cut.vector,
        RANK_BITS=cut.rank_bits,
        num_warps=4,
    )
    _bound_kernel[(batch,)](
        maxima, bounds, cut.k, GROUPS=cut.groups, RANK_BITS=cut.rank_bits, num_warps=8
    )
    _candidates_kernel[(cut.chunks, batch)](
        logits,
        lengths,
        bounds,
        candidates,
        counts,
        logits.stride(0),
        CHUNK=cut.chunk_columns,
        SEGMENT=cut.segment,
        BLOCK=TILE,
        VECTOR=cut.vector,
        RANK_BITS=cut.rank_bits,
        num_warps=8,
    )


def pick(
    logits: Tensor, lengths: Tensor, cut: Cut, candidates: Tensor, counts: Tensor, out: Tensor
) -> None:
    """Launch the last step: choose from the listed candidates, or from short rows directly.

    Args:
        logits: `[B, S]` float32.
        lengths: `[B]` int32.
        cut: how the rows were cut.
        candidates: `[B, chunks, segment]` int32; unused for short rows.
        counts: `[B, chunks]` int32; unused for short rows.
        out: `[B, k]` int32, written.
    """
    _pick_kernel[(logits.shape[0],)](
        logits,
        lengths,
        candidates,
        counts,
        out,
        logits.stride(0),
        out.stride(0),
        cut.k,
        CAPACITY=cut.capacity,
        LEVELS=cut.chunks.bit_length() - 1,
        SEGMENT=cut.segment,
        DIRECT=cut.is_direct,
        BLOCK=TILE,
        VECTOR=cut.vector,
        RANK_BITS=cut.rank_bits,
        num_warps=cut.pick_warps,
    )


def _check(logits: Tensor, lengths: Tensor, k: int) -> None:
    if logits.dtype is not torch.float32 or logits.stride(-1) != 1:
        raise ValueError("logits must be float32 with contiguous rows")
    if lengths.dtype is not torch.int32 or not lengths.is_contiguous():
        raise ValueError("lengths must be contiguous int32")
    if k < 1:
        raise ValueError(f"k must be at least 1: {k}")


def select_topk(
    logits: Tensor,
    lengths: Tensor,
    k: int,
    *,
    out: Tensor | None = None,
    workspace: Workspace | None = None,
) -> Tensor:
    """Return the columns of each row's k largest scores: `[B, k]` int32, -1 where there are fewer.

    The same set as `reference.select_topk`, in ascending order of column, so equal inputs give
    equal bytes. Nothing waits for the device, so it can be captured.

    Args:
        logits: `[B, S]` float32.
        lengths: `[B]` int32, at most S.
        k: how many to choose; may exceed S.
        out: `[B, k]` int32 to write into and return; allocated when None.
        workspace: as `Workspace.allocate(B, S, k)` returns it; allocated when None.

    Raises:
        ValueError: a dtype or stride the kernels were not written for, or k < 1.
    """
    _check(logits, lengths, k)
    batch, columns = logits.shape
    cut = Cut.of(columns, k)
    if out is None:
        out = torch.empty((batch, k), dtype=torch.int32, device=logits.device)
    candidates = counts = out
    if not cut.is_direct:
        workspace = workspace or Workspace.allocate(batch, columns, k, device=logits.device)
        _thin_out(logits, lengths, cut, workspace)
        candidates, counts = workspace.candidates, workspace.counts
    pick(logits, lengths, cut, candidates, counts, out)
    return out
