"""Top-k on a GPU: thin a row out by block maxima, then bisect what is left, on chip.

The contract is `payload.indexer.reference.select_topk`. Two facts carry it.

*The k best blocks hold the k best columns.* Cut a row into blocks and rank them by their largest
score, earlier blocks first among equals. A column outside the k best blocks is beaten by the best
column of each of them, so k columns beat it. Finding the best blocks is the same problem on a row
of maxima, a fan of 8 or 16 times shorter; that repeats until a row of maxima fits on chip.

*A bound is found by halving.* Scores, read as integers that sort alike, lie between a bound that at
least k of them reach and one that fewer do. Counting those that reach the middle halves the gap,
so at most 32 counts end with exactly k, or with the one value whose ties the column breaks.

The work does not depend on how scores are spread over a row, there is no atomic, and the columns
come out in ascending order, so equal inputs give equal bytes. One launch a level writes maxima,
with many programs a row; a last one, with one program a row, goes back down the levels. No number
read from memory is used as an address before it is checked, so scores or maxima that somebody else
overwrites meanwhile give wrong columns of the row (or -1), never a fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

ON_CHIP = 16384  # scores that one program holds in registers
SHORT = 8192  # rows up to here are never thinned out
LANES = 16  # scores side by side in a tile, of which a thread holds four
MAXIMA_TILE = 8192  # scores that one program takes maxima of


@dataclass(frozen=True)
class Cut:
    """How rows of `columns` scores are thinned out for a given k.

    Attributes:
        columns: scores in a row, S.
        k: how many are chosen.
        fan: columns of a block, and blocks of a block one level up; a power of two.
        levels: how many times maxima are taken; 0 for short rows.
    """

    columns: int
    k: int
    fan: int
    levels: int

    @staticmethod
    def of(columns: int, k: int) -> Cut:
        """Return the cut for rows of `columns` scores.

        Raises:
            ValueError: k is so large that k blocks of two columns do not fit on chip.
        """
        fan = min(16, ON_CHIP // triton.next_power_of_2(k))
        longest = max(SHORT, triton.next_power_of_2(k) * fan)
        if fan < 2 and columns > longest:
            raise ValueError(f"k must be at most {ON_CHIP // 2} for rows of {columns}: {k}")
        levels = 0
        while triton.cdiv(columns, fan**levels) > longest:
            levels += 1
        return Cut(columns, k, fan, levels)

    @property
    def width(self) -> int:
        """Maxima of a row at level 1, the widest; padded so that rows stay aligned."""
        return triton.cdiv(triton.cdiv(self.columns, self.fan), LANES) * LANES

    @property
    def top(self) -> int:
        """Room for the scores or maxima that the last launch starts from; a power of two."""
        return max(LANES, triton.next_power_of_2(triton.cdiv(self.columns, self.fan**self.levels)))

    @property
    def chosen(self) -> int:
        """Room for the chosen; a power of two."""
        return triton.next_power_of_2(self.k)

    @property
    def warps(self) -> int:
        """Warps of the last launch: sixteen scores of its largest tile for each thread."""
        largest = max(self.top, self.chosen * self.fan if self.levels else 0)
        return max(4, min(32, largest // 512))

    @property
    def vector(self) -> int:
        """Scores that can be loaded at once without reading past the end of a row."""
        return 4 if self.columns % 4 == 0 else 1


@dataclass(frozen=True)
class Workspace:
    """What one call keeps between its launches; a call must not share it with another.

    Attributes:
        maxima: `[B, levels, width]` float32.
    """

    maxima: Tensor

    @staticmethod
    def allocate(batch: int, columns: int, k: int, *, device: torch.device | str) -> Workspace:
        """Return an uninitialised workspace for rows of `columns` scores."""
        cut = Cut.of(columns, k)
        shape = (batch, cut.levels, cut.width)
        return Workspace(torch.empty(shape, dtype=torch.float32, device=device))

    @property
    def nbytes(self) -> int:
        """Bytes of its buffer."""
        return self.maxima.nbytes


@triton.jit
def _load(row, o_column, length, VECTOR: tl.constexpr):
    """Return a row's scores and which columns are valid; -inf for NaN and where not valid."""
    # A mask that is constant over VECTOR columns lets the compiler load that many at once.
    m_load = (o_column >= 0) & (o_column < tl.cdiv(length, VECTOR) * VECTOR)
    b_score = tl.load(row + o_column, mask=m_load, other=float("-inf"))
    m_valid = (o_column >= 0) & (o_column < length)
    is_number = b_score == b_score  # noqa: PLR0124 - Triton has no isnan
    return tl.where(m_valid & is_number, b_score, float("-inf")), m_valid


@triton.jit
def _maxima_kernel(
    scores,  # [B, S] float32
    lengths,  # [B] int32, of the rows at level 0
    maxima,  # [B, blocks] float32
    scores_stride,
    maxima_stride,
    divisor,
    FAN: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    i_row = tl.program_id(1).to(tl.int64)
    length = tl.cdiv(tl.load(lengths + i_row), divisor)
    first = tl.program_id(0) * BLOCK
    if first * FAN >= length:
        return
    o_block = first + tl.arange(0, BLOCK)
    o_column = o_block[:, None] * FAN + tl.arange(0, FAN)[None, :]  # [BLOCK, FAN]
    b_score, _ = _load(scores + i_row * scores_stride, o_column, length, VECTOR)
    m_block = o_block < tl.cdiv(length, FAN)
    tl.store(maxima + i_row * maxima_stride + o_block, tl.max(b_score, axis=1), mask=m_block)


@triton.jit
def _ordered(b_score, m_valid):
    """Return int32 keys that sort as the scores do; the least int32 where not valid."""
    bits = (b_score + 0.0).to(tl.int32, bitcast=True)  # the sum turns -0.0 into 0.0
    return tl.where(m_valid, bits ^ ((bits >> 31) & 0x7FFFFFFF), -(2**31))


@triton.jit
def _bound(b_key, m_valid, floor, k):
    """Return a bound and how many keys reach it: k, or more if they are equal, or all there are."""
    least = tl.min(tl.where(m_valid, b_key, 2**31 - 1)).to(tl.int64)
    low = tl.maximum(floor, least)
    high = tl.max(b_key).to(tl.int64) + 1
    reaching = tl.sum((m_valid & (b_key >= low.to(tl.int32))).to(tl.int32))
    while (reaching > k) & (high - low > 1):
        middle = (low + high) >> 1
        count = tl.sum((b_key >= middle.to(tl.int32)).to(tl.int32))
        is_enough = count >= k
        low = tl.where(is_enough, middle, low)
        high = tl.where(is_enough, high, middle)
        reaching = tl.where(is_enough, count, reaching)
    return low, reaching


@triton.jit
def _running(b_count):
    """Return the running sums of a tile `[R, C]` in row-major order."""
    b_row = tl.sum(b_count, axis=1)
    b_before = tl.cumsum(b_row, axis=0) - b_row
    return b_before[:, None] + tl.cumsum(b_count, axis=1)


@triton.jit
def _choose(b_score, o_column, m_valid, floor, k, chosen, K: tl.constexpr):
    """Write the columns of the k best of a tile `[R, C]`, in its order, and -1 behind them.

    Returns the floor for the next level down: at least k of its scores reach it.
    """
    b_key = _ordered(b_score, m_valid)
    low, reaching = _bound(b_key, m_valid, floor, k)
    bound = low.to(tl.int32)
    m_above = m_valid & (b_key > bound)
    m_equal = m_valid & (b_key == bound)
    # Two running sums in one: a tile holds fewer than 2**16 scores.
    b_both = _running(m_above.to(tl.uint32) + (m_equal.to(tl.uint32) << 16))
    b_above = (b_both & 0xFFFF).to(tl.int32)
    b_equal = (b_both >> 16).to(tl.int32)
    wanted = k - tl.sum(m_above.to(tl.int32))
    o_place = b_above + tl.minimum(b_equal, wanted) - 1
    m_chosen = (m_above | (m_equal & (b_equal <= wanted))) & (o_place >= 0) & (o_place < k)
    tl.store(chosen + o_place, o_column, mask=m_chosen)
    o_tail = tl.sum(m_chosen.to(tl.int32)) + tl.arange(0, K)
    tl.store(chosen + o_tail, -1, mask=o_tail < k)
    return tl.where(reaching >= k, low, -(2**31) + 1)


@triton.jit
def _pick_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    maxima,  # [B, LEVELS, WIDTH] float32; unused without levels
    out,  # [B, k] int32; holds numbers of blocks on the way down
    logits_stride,
    out_stride,
    k,
    K: tl.constexpr,
    TOP: tl.constexpr,
    LEVELS: tl.constexpr,
    WIDTH: tl.constexpr,
    FAN: tl.constexpr,
    LANES: tl.constexpr,
    VECTOR: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + i_row)
    chosen = out + i_row * out_stride
    logits += i_row * logits_stride
    maxima += i_row * LEVELS * WIDTH
    o_column = tl.arange(0, TOP // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    if LEVELS == 0:
        b_score, m_valid = _load(logits, o_column, length, VECTOR)
    else:
        top = maxima + (LEVELS - 1) * WIDTH
        b_score, m_valid = _load(top, o_column, tl.cdiv(length, FAN**LEVELS), 4)
    floor = tl.full((), -(2**31) + 1, tl.int64)
    floor = _choose(b_score, o_column, m_valid, floor, k, chosen, K)
    for step in tl.static_range(LEVELS):
        tl.debug_barrier()  # the blocks just written are read by other threads
        o_k = tl.arange(0, K)
        b_block = tl.load(chosen + o_k, mask=o_k < k, other=-1)
        o_column = b_block[:, None] * FAN + tl.arange(0, FAN)[None, :]  # negative for no block
        if step == LEVELS - 1:
            b_score, m_valid = _load(logits, o_column, length, VECTOR)
        else:
            below = maxima + (LEVELS - 2 - step) * WIDTH
            below_length = tl.cdiv(length, FAN ** (LEVELS - 1 - step))
            b_score, m_valid = _load(below, o_column, below_length, 4)
        floor = _choose(b_score, o_column, m_valid, floor, k, chosen, K)


def _take_maxima(logits: Tensor, lengths: Tensor, cut: Cut, maxima: Tensor) -> None:
    """Fill the levels of `maxima` from the bottom."""
    scores, width = logits, cut.columns
    for level in range(cut.levels):
        width = triton.cdiv(width, cut.fan)
        block = MAXIMA_TILE // cut.fan
        _maxima_kernel[(triton.cdiv(width, block), logits.shape[0])](
            scores,
            lengths,
            maxima[:, level],
            scores.stride(0),
            maxima.stride(0),
            cut.fan**level,
            FAN=cut.fan,
            BLOCK=block,
            VECTOR=4 if level else cut.vector,
            num_warps=4,
        )
        scores = maxima[:, level]


def pick(logits: Tensor, lengths: Tensor, cut: Cut, maxima: Tensor, out: Tensor) -> None:
    """Launch the last step: from the top level of `maxima` down to the chosen columns.

    Args:
        logits: `[B, S]` float32.
        lengths: `[B]` int32.
        cut: how the rows were cut.
        maxima: `[B, levels, width]` float32; unused without levels.
        out: `[B, k]` int32, written.
    """
    _pick_kernel[(logits.shape[0],)](
        logits,
        lengths,
        maxima,
        out,
        logits.stride(0),
        out.stride(0),
        cut.k,
        K=cut.chosen,
        TOP=cut.top,
        LEVELS=cut.levels,
        WIDTH=cut.width,
        FAN=cut.fan,
        LANES=LANES,
        VECTOR=cut.vector,
        num_warps=cut.warps,
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

    The same set as `reference.select_topk`, in ascending order of column. Nothing waits for the
    device, so it can be captured.

    Args:
        logits: `[B, S]` float32.
        lengths: `[B]` int32, at most S.
        k: how many to choose; may exceed S.
        out: `[B, k]` int32 to write into and return; allocated when None.
        workspace: as `Workspace.allocate(B, S, k)` returns it; allocated when None.

    Raises:
        ValueError: a dtype, stride or k the kernels were not written for.
    """
    _check(logits, lengths, k)
    batch, columns = logits.shape
    cut = Cut.of(columns, k)
    if out is None:
        out = torch.empty((batch, k), dtype=torch.int32, device=logits.device)
    maxima = logits
    if cut.levels:
        workspace = workspace or Workspace.allocate(batch, columns, k, device=logits.device)
        maxima = workspace.maxima
        _take_maxima(logits, lengths, cut, maxima)
    pick(logits, lengths, cut, maxima, out)
    return out
