"""Top-k on a GPU: thin a row out by block maxima, then close in on a bound, on chip.

The contract is `payload.indexer.reference.select_topk`. Two facts carry it.

*The k best blocks hold the k best columns.* Cut a row into blocks and rank them by their largest
score, earlier blocks first among equals. A column outside the k best blocks is beaten by the best
column of each of them, so k columns beat it. Finding the best blocks is the same problem on a row
of maxima, a fan of 4 or 8 times shorter; that repeats until a row of maxima fits on chip.

*A bound is found by closing in.* Scores, read as integers that sort alike, lie between a bound that
at least k of them reach and one that fewer do. Counting those that reach two guesses in between
moves the bounds until exactly k reach one, or one value is left, whose ties the column breaks. The
guesses follow the counts but never leave more than three quarters of the gap, so that no row takes
more than 78 counts; usual ones take about five a level.

The work hardly depends on how scores are spread over a row, there is no atomic, and columns come
out in ascending order, so equal inputs give equal bytes. One launch writes two levels of maxima,
with many programs a row; a last one, with one program a row, goes back down the levels. No number
read from memory is used as an address before it is checked, so scores or maxima that somebody else
overwrites meanwhile give wrong columns of the row (or -1), never a fault.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from payload.indexer.select_cut import MAXIMA_TILE, Cut, Workspace

QUAD = tl.constexpr(4)  # scores side by side in a tile: 16 bytes, what a thread loads at once
LEAST = tl.constexpr(-(2**31))  # the key of what is not there; scores have larger ones


@triton.jit
def _load(row, o_first, length, VECTOR: tl.constexpr):
    """Return a tile `[R, 4]` of a row's scores, from columns `o_first[R]`, and which are valid.

    What is not valid is -inf, and so is NaN.
    """
    o_column = o_first[:, None] + tl.arange(0, QUAD)[None, :]
    # One unsigned comparison for both ends, since a negative column is a very large one. A mask
    # that is constant over VECTOR columns lets the compiler load that many at once.
    o_unsigned = o_column.to(tl.uint32, bitcast=True)
    m_load = o_unsigned < (tl.cdiv(length, VECTOR) * VECTOR).to(tl.uint32)
    b_score = tl.load(row + o_column, mask=m_load, other=float("-inf"))
    m_valid = o_unsigned < length.to(tl.uint32)
    is_number = b_score == b_score  # noqa: PLR0124 - Triton has no isnan
    return tl.where(m_valid & is_number, b_score, float("-inf")), m_valid


@triton.jit
def _length(lengths, i_row, columns):
    """Return a row's length; what is out of range means none or all."""
    return tl.minimum(tl.maximum(tl.load(lengths + i_row), 0), columns)


@triton.jit
def _maxima_kernel(
    scores,  # [B, S] float32
    lengths,  # [B] int32, of the rows at level 0
    maxima,  # [B, S / FAN] float32
    coarse,  # [B, S / FAN**2] float32; unused unless BOTH
    scores_stride,
    maxima_stride,
    columns,
    divisor,
    FAN: tl.constexpr,
    BLOCK: tl.constexpr,
    BOTH: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Take the maxima of blocks, and of blocks of blocks."""
    i_row = tl.program_id(1).to(tl.int64)
    length = tl.cdiv(_length(lengths, i_row, columns), divisor)
    first = tl.program_id(0) * BLOCK
    if first >= length:
        return
    o_first = first + tl.arange(0, BLOCK // QUAD) * QUAD
    b_score, _ = _load(scores + i_row * scores_stride, o_first, length, VECTOR)
    b_best = tl.max(tl.reshape(b_score, [BLOCK // FAN, FAN]), axis=1)
    o_best = first // FAN + tl.arange(0, BLOCK // FAN)
    row = maxima + i_row * maxima_stride
    tl.store(row + o_best, b_best, mask=o_best < tl.cdiv(length, FAN))
    if BOTH:
        b_best = tl.max(tl.reshape(b_best, [BLOCK // FAN // FAN, FAN]), axis=1)
        o_best = first // FAN // FAN + tl.arange(0, BLOCK // FAN // FAN)
        row = coarse + i_row * maxima_stride
        tl.store(row + o_best, b_best, mask=o_best < tl.cdiv(length, FAN * FAN))


@triton.jit
def _keys(row, o_first, length, VECTOR: tl.constexpr):
    """Return int32 keys `[R, 4]` that sort as the scores do; `LEAST` for what is not valid."""
    b_score, m_valid = _load(row, o_first, length, VECTOR)
    bits = (b_score + 0.0).to(tl.int32, bitcast=True)  # the sum turns -0.0 into 0.0
    return tl.where(m_valid, bits ^ ((bits >> 31) & 0x7FFFFFFF), LEAST)


@triton.jit
def _bound(b_key, low, reaching, k):
    """Raise `low`, which `reaching` keys reach, until k do or all that do so are equal.

    Returns it, how many reach it, and how many lie beyond it where those are equal.
    """
    high = tl.max(b_key) + 1
    beyond = 0
    span = (high - low).to(tl.uint32, bitcast=True)
    # Given sums of plain truth values, the compiler packs them into bits: twice the instructions.
    one = tl.minimum(k, 1)
    while (reaching > k) & (span > 1):
        part = 0.75 * (reaching - k + 0.5) / (reaching - beyond)
        step = tl.minimum(tl.maximum((span.to(tl.float32) * part).to(tl.uint32), 1), span - 1)
        near = low + step.to(tl.int32, bitcast=True)
        far = low + tl.minimum(step + (span >> 2), span - 1).to(tl.int32, bitcast=True)
        # Two counts in one sum: a tile holds fewer than 2**15 scores.
        b_reach = tl.where(b_key >= near, one, 0) + tl.where(b_key >= far, one << 16, 0)
        both = tl.sum(b_reach)
        count_near, count_far = both & 0xFFFF, both >> 16
        is_near, is_far = count_near >= k, count_far >= k
        high = tl.where(is_far, high, tl.where(is_near, far, near))
        beyond = tl.where(is_far, beyond, tl.where(is_near, count_far, count_near))
        low = tl.where(is_far, far, tl.where(is_near, near, low))
        reaching = tl.where(is_far, count_far, tl.where(is_near, count_near, reaching))
        span = (high - low).to(tl.uint32, bitcast=True)
    return low, reaching, beyond


@triton.jit
def _columns_of(b_tile):
    """Return the four columns of a tile `[R, 4]`, each `[R]`; nothing moves between threads."""
    b_even, b_odd = tl.split(tl.reshape(b_tile, [b_tile.shape[0], 2, 2]))
    b_0, b_2 = tl.split(b_even)
    b_1, b_3 = tl.split(b_odd)
    return b_0, b_1, b_2, b_3


@triton.jit
def _write(b_key, o_first, bound, k, chosen):
    """Write the columns whose keys reach the bound, in order; they are at most k."""
    b_count = tl.sum((b_key >= bound).to(tl.int32), axis=1)
    o_place = tl.cumsum(b_count, axis=0) - b_count  # how many came before
    quad = _columns_of(b_key)
    for i in tl.static_range(QUAD):
        m_chosen = quad[i] >= bound
        tl.store(chosen + o_place, o_first + i, mask=m_chosen & (o_place < k))
        o_place += m_chosen.to(tl.int32)


@triton.jit
def _write_with_ties(b_key, o_first, bound, wanted, k, chosen):
    """Write the columns beyond the bound, and the first `wanted` of those that equal it."""
    # Two running sums in one: above in the low half, equal in the high one.
    b_count = tl.sum((b_key > bound).to(tl.int32) + ((b_key == bound).to(tl.int32) << 16), axis=1)
    b_before = tl.cumsum(b_count, axis=0) - b_count
    quad = _columns_of(b_key)
    for i in tl.static_range(QUAD):
        m_above, m_equal = quad[i] > bound, quad[i] == bound
        b_equal = b_before >> 16
        o_place = (b_before & 0xFFFF) + tl.minimum(b_equal, wanted)
        m_chosen = (m_above | (m_equal & (b_equal < wanted))) & (o_place < k)
        tl.store(chosen + o_place, o_first + i, mask=m_chosen)
        b_before += m_above.to(tl.int32) + (m_equal.to(tl.int32) << 16)


@triton.jit
def _choose(b_key, o_first, low, reaching, k, chosen, K: tl.constexpr):
    """Write the columns of the k best of a tile `[R, 4]`, in its order, and -1 behind them.

    Args:
        b_key: their keys, `LEAST` where there is no column.
        o_first: the first column of each row of the tile.
        low: a key that at least k reach, or all of them if they are fewer.
        reaching: how many reach it.
        k: how many to choose.
        chosen: where to write k columns.
        K: room for k.

    Returns the key that k reach, or LEAST + 1 if they are fewer.
    """
    bound, reaching, beyond = _bound(b_key, low, reaching, k)
    if reaching <= k:
        _write(b_key, o_first, bound, k, chosen)
    else:
        _write_with_ties(b_key, o_first, bound, k - beyond, k, chosen)
    o_tail = reaching + tl.arange(0, K)
    tl.store(chosen + o_tail, -1, mask=o_tail < k)
    return tl.where(reaching >= k, bound, LEAST + 1)


@triton.jit
def _pick_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    maxima,  # [B, LEVELS, WIDTH] float32; unused without levels
    out,  # [B, k] int32; holds numbers of blocks on the way down
    logits_stride,
    out_stride,
    columns,
    k,
    K: tl.constexpr,
    TOP: tl.constexpr,
    LEVELS: tl.constexpr,
    WIDTH: tl.constexpr,
    FAN: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Choose from the top level, then from the blocks chosen so far, level by level."""
    i_row = tl.program_id(0).to(tl.int64)
    length = _length(lengths, i_row, columns)
    chosen = out + i_row * out_stride
    logits += i_row * logits_stride
    maxima += i_row * LEVELS * WIDTH
    o_first = tl.arange(0, TOP // QUAD) * QUAD
    top, top_length = logits, length
    if LEVELS > 0:
        top, top_length = maxima + (LEVELS - 1) * WIDTH, tl.cdiv(length, FAN**LEVELS)
    b_key = _keys(top, o_first, top_length, QUAD if LEVELS > 0 else VECTOR)
    low = tl.min(tl.where(b_key == LEAST, 2**31 - 1, b_key))
    low = _choose(b_key, o_first, low, top_length, k, chosen, K)
    o_row = tl.arange(0, K * FAN // QUAD)
    o_slot = o_row // (FAN // QUAD)
    for step in tl.static_range(LEVELS):
        tl.debug_barrier()  # the blocks just written are read by other threads
        b_block = tl.load(chosen + o_slot, mask=o_slot < k, other=-1)
        o_first = b_block * FAN + (o_row % (FAN // QUAD)) * QUAD  # negative for no block
        if step == LEVELS - 1:
            b_key = _keys(logits, o_first, length, VECTOR)
        else:
            below_length = tl.cdiv(length, FAN ** (LEVELS - 1 - step))
            b_key = _keys(maxima + (LEVELS - 2 - step) * WIDTH, o_first, below_length, QUAD)
        reaching = tl.sum(tl.where(b_key >= low, tl.minimum(k, 1), 0))
        tl.debug_barrier()  # and are overwritten only after all have read them
        low = _choose(b_key, o_first, low, reaching, k, chosen, K)


def _take_maxima(logits: Tensor, lengths: Tensor, cut: Cut, maxima: Tensor) -> None:
    """Fill the levels of `maxima` from the bottom, two with each launch."""
    scores, width = logits, cut.columns
    for level in range(0, cut.levels, 2):
        is_last = level == cut.levels - 1
        _maxima_kernel[(triton.cdiv(width, MAXIMA_TILE), logits.shape[0])](
            scores,
            lengths,
            maxima[:, level],
            maxima[:, level if is_last else level + 1],
            scores.stride(0),
            maxima.stride(0),
            cut.columns,
            cut.fan**level,
            FAN=cut.fan,
            BLOCK=MAXIMA_TILE,
            BOTH=not is_last,
            VECTOR=4 if level else cut.vector,
            num_warps=4,
        )
        if not is_last:
            scores = maxima[:, level + 1]
            width = triton.cdiv(width, cut.fan**2)


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
        cut.columns,
        cut.k,
        K=cut.chosen,
        TOP=cut.top,
        LEVELS=cut.levels,
        WIDTH=cut.width,
        FAN=cut.fan,
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
        lengths: `[B]` int32; more than S means S, less than 0 means 0.
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
