"""Top-k on a GPU: thin a row out by block maxima, then close in on a bound, on chip.

The contract is `payload.indexer.reference.select_topk`. Three facts carry it.

*The k best blocks hold the k best columns.* Cut a row into blocks and rank them by their largest
score, earlier blocks first among equals. A column outside the k best blocks is beaten by the best
column of each of them, so k columns beat it. Finding the best blocks is the same problem on a row
of maxima, a fan of 4 or 8 times shorter; that repeats until a row of maxima fits on chip.

*A bound is found by closing in.* Scores, read as integers that sort alike, lie between a bound that
at least k of them reach and one that fewer do. Counting those that reach two guesses in between
moves the bounds until exactly k reach one, or one value is left, whose ties the column breaks. The
guesses follow the counts but never leave more than three quarters of the gap, so that no row takes
more than 78 counts; usual ones take about five a level.

*A bound from parts bounds the whole.* Deal the blocks into P groups. If k/P blocks of each reach
the group's own bound, then k blocks, and so k columns, reach the least of these bounds, and every
column that doesn't can be forgotten. With blocks dealt like cards that keeps few more than k.

So the first launch, many programs a row, writes two levels of maxima and a bound for each group.
The second, many programs a row, lists each segment's columns that reach the least bound. The last,
one program a row, chooses from the lists; where they overflow, since scores lie in heaps, and for
shapes that are not worth a second launch, it goes down the levels of maxima instead.

There is no atomic, and columns come out in ascending order, so equal inputs give equal bytes. No
program waits for another of its launch. No number read from memory is used as an address before it
is checked, so scores, maxima or lists that somebody else overwrites meanwhile give wrong columns of
the row (or -1), never a fault.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from payload.indexer import select_tile as tile
from payload.indexer.select_cut import Cut, Workspace
from payload.indexer.select_list import choose_listed, list_candidates
from payload.indexer.select_tile import LEAST, QUAD

SLACK = tl.constexpr(8)  # a group's bound may be reached by an eighth more than it must be
RUN = tl.constexpr(256)  # columns side by side that a group is dealt


@triton.jit
def _dealt(o_tile, i_group, groups):
    """Return the column of each place of a group's tile: runs are dealt to groups in turn."""
    return (o_tile // RUN * groups + i_group) * RUN + o_tile % RUN


@triton.jit
def _maxima_kernel(
    scores,  # [B, S] float32
    lengths,  # [B] int32, of the rows at level 0
    maxima,  # [B, S / FAN] float32
    coarse,  # [B, S / FAN**2] float32; unused unless BOTH
    bounds,  # [B, P] int32; unused unless BOUNDED
    scores_stride,
    maxima_stride,
    bounds_stride,
    columns,
    divisor,
    k,
    FAN: tl.constexpr,
    BLOCK: tl.constexpr,
    BOTH: tl.constexpr,
    BOUNDED: tl.constexpr,
    VECTOR: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Take the maxima of blocks, and of blocks of blocks, and bound the latter."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    i_row = tl.program_id(1).to(tl.int64)
    i_group, groups = tl.program_id(0), tl.num_programs(0)
    length = tl.cdiv(tile.load_length(lengths, i_row, columns), divisor)
    o_first = _dealt(tl.arange(0, BLOCK // QUAD) * QUAD, i_group, groups)
    b_score, _ = tile.load_scores(scores + i_row * scores_stride, o_first, length, VECTOR)
    b_best = tl.max(tl.reshape(b_score, [BLOCK // FAN, FAN]), axis=1)
    o_best = _dealt(tl.arange(0, BLOCK // FAN) * FAN, i_group, groups) // FAN
    row = maxima + i_row * maxima_stride
    tl.store(row + o_best, b_best, mask=o_best < tl.cdiv(length, FAN))
    if BOTH:
        b_best = tl.max(tl.reshape(b_best, [BLOCK // FAN // FAN, FAN]), axis=1)
        o_best = _dealt(tl.arange(0, BLOCK // FAN // FAN) * (FAN * FAN), i_group, groups)
        o_best = o_best // (FAN * FAN)
        row = coarse + i_row * maxima_stride
        m_best = o_best < tl.cdiv(length, FAN * FAN)
        tl.store(row + o_best, b_best, mask=m_best)
    if BOUNDED:
        wanted = tl.cdiv(k, groups)
        b_key = tile.key_of(b_best, m_best)
        there = tile.count_of(b_key, LEAST + 1, k)
        bound, _, _ = tile.raise_bound(b_key, tile.least_of(b_key), there, wanted, wanted // SLACK)
        bound = tl.where(there >= wanted, bound, LEAST + 1)
        tl.store(bounds + i_row * bounds_stride + i_group, bound)


@triton.jit
def _descend(logits, maxima, length, k, chosen, K, TOP, LEVELS, WIDTH, FAN, VECTOR):
    """Choose from the top level, then from the blocks chosen so far, level by level."""
    o_first = tl.arange(0, TOP // QUAD) * QUAD
    top, top_length = logits, length
    if LEVELS > 0:
        top, top_length = maxima + (LEVELS - 1) * WIDTH, tl.cdiv(length, FAN**LEVELS)
    b_key = tile.load_keys(top, o_first, top_length, QUAD if LEVELS > 0 else VECTOR)
    low = tile.least_of(b_key)
    low = tile.choose(b_key, tile.columns_of(o_first), low, top_length, k, chosen, K)
    o_row = tl.arange(0, K * FAN // QUAD)
    o_slot = o_row // (FAN // QUAD)
    for step in tl.static_range(LEVELS):
        tl.debug_barrier()  # the blocks just written are read by other threads
        b_block = tl.load(chosen + o_slot, mask=o_slot < k, other=-1)
        o_first = b_block * FAN + (o_row % (FAN // QUAD)) * QUAD  # negative for no block
        if step == LEVELS - 1:
            b_key = tile.load_keys(logits, o_first, length, VECTOR)
        else:
            below_length = tl.cdiv(length, FAN ** (LEVELS - 1 - step))
            b_key = tile.load_keys(
                maxima + (LEVELS - 2 - step) * WIDTH, o_first, below_length, QUAD
            )
        reaching = tile.count_of(b_key, low, k)
        tl.debug_barrier()  # and are overwritten only after all have read them
        low = tile.choose(b_key, tile.columns_of(o_first), low, reaching, k, chosen, K)


@triton.jit
def _pick_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    maxima,  # [B, LEVELS, WIDTH] float32; unused without levels
    candidates,  # [B, words] int32; unused without segments
    out,  # [B, k] int32; holds numbers of blocks on the way down
    logits_stride,
    candidates_stride,
    out_stride,
    columns,
    k,
    K: tl.constexpr,
    TOP: tl.constexpr,
    LEVELS: tl.constexpr,
    WIDTH: tl.constexpr,
    FAN: tl.constexpr,
    VECTOR: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SPREAD: tl.constexpr,
    SHARE: tl.constexpr,
    ROOM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Choose a row's columns: from the lists of its segments, or level by level."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    i_row = tl.program_id(0).to(tl.int64)
    length = tile.load_length(lengths, i_row, columns)
    chosen = out + i_row * out_stride
    is_chosen = False
    if SEGMENTS > 0:
        keys = candidates + i_row * candidates_stride
        is_chosen = choose_listed(keys, length, k, chosen, K, SEGMENTS, SPREAD, SHARE, ROOM)
    if not is_chosen:
        logits += i_row * logits_stride
        maxima += i_row * LEVELS * WIDTH
        _descend(logits, maxima, length, k, chosen, K, TOP, LEVELS, WIDTH, FAN, VECTOR)


def take_maxima(logits: Tensor, lengths: Tensor, cut: Cut, workspace: Workspace) -> None:
    """Fill the levels of maxima from the bottom, two with each launch, and the bounds."""
    scores, width, maxima = logits, cut.columns, workspace.maxima
    bounds = workspace.candidates[:, cut.bounds_at :]
    for level in range(0, cut.levels, 2):
        is_last = level == cut.levels - 1
        _maxima_kernel[(triton.cdiv(width, cut.tile), logits.shape[0])](
            scores,
            lengths,
            maxima[:, level],
            maxima[:, level if is_last else level + 1],
            bounds,
            scores.stride(0),
            maxima.stride(0),
            bounds.stride(0),
            cut.columns,
            cut.fan**level,
            cut.k,
            FAN=cut.fan,
            BLOCK=cut.tile,
            BOTH=not is_last,
            BOUNDED=cut.segments > 0,
            VECTOR=4 if level else cut.vector,
            EARLY=cut.starts_early(logits.device),
            num_warps=cut.tile // 1024,
        )
        if not is_last:
            scores = maxima[:, level + 1]
            width = triton.cdiv(width, cut.fan**2)


def pick(logits: Tensor, lengths: Tensor, cut: Cut, workspace: Workspace, out: Tensor) -> None:
    """Launch the last step: from the lists of candidates, or down the levels, to the columns.

    Args:
        logits: `[B, S]` float32.
        lengths: `[B]` int32.
        cut: how the rows were cut.
        workspace: as the launches before filled it.
        out: `[B, k]` int32, written.
    """
    is_early = cut.starts_early(logits.device)
    _pick_kernel[(logits.shape[0],)](
        logits,
        lengths,
        workspace.maxima,
        workspace.candidates,
        out,
        logits.stride(0),
        workspace.candidates.stride(0),
        out.stride(0),
        cut.columns,
        cut.k,
        K=cut.chosen,
        TOP=cut.top,
        LEVELS=cut.levels,
        WIDTH=cut.width,
        FAN=cut.fan,
        VECTOR=cut.vector,
        SEGMENTS=cut.segments,
        SPREAD=triton.next_power_of_2(max(1, cut.segments)),
        SHARE=cut.share,
        ROOM=cut.room,
        EARLY=is_early,
        num_warps=cut.warps,
        launch_pdl=is_early,
    )


def _check(logits: Tensor, lengths: Tensor, k: int) -> None:
    if logits.dtype is not torch.float32 or logits.stride(-1) != 1:
        raise ValueError("logits must be float32 with contiguous rows")
    if lengths.dtype is not torch.int32 or not lengths.is_contiguous():
        raise ValueError("lengths must be contiguous int32")
    if lengths.shape != logits.shape[:1]:
        raise ValueError(f"{tuple(lengths.shape)} lengths for {logits.shape[0]} rows of logits")
    if k < 1:
        raise ValueError(f"k must be at least 1: {k}")


def _check_given(out: Tensor, workspace: Workspace, cut: Cut, device: torch.device) -> None:
    """Refuse what the kernels would write outside of: they take every size from the logits."""
    if out.dtype is not torch.int32 or out.shape != (cut.batch, cut.k) or out.stride(-1) != 1:
        raise ValueError(
            f"out must be int32 [{cut.batch}, {cut.k}] with contiguous rows: {tuple(out.shape)}"
        )
    if not workspace.fits(cut, device):
        raise ValueError(
            f"the workspace was allocated for other rows than {cut.batch} of {cut.columns} with"
            f" k = {cut.k}: maxima {tuple(workspace.maxima.shape)},"
            f" candidates {tuple(workspace.candidates.shape)}"
        )


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
        ValueError: a dtype, stride or k the kernels were not written for; lengths, `out` or a
            workspace of another shape.
    """
    _check(logits, lengths, k)
    batch, columns = logits.shape
    cut = Cut.of(columns, k, batch)
    if out is None:
        out = torch.empty((batch, k), dtype=torch.int32, device=logits.device)
    workspace = workspace or Workspace.allocate(batch, columns, k, device=logits.device)
    _check_given(out, workspace, cut, logits.device)
    if cut.levels:
        take_maxima(logits, lengths, cut, workspace)
    if cut.segments:
        list_candidates(logits, lengths, cut, workspace)
    pick(logits, lengths, cut, workspace, out)
    return out
