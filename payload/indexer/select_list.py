"""The second launch of the top-k: each segment of a row lists the columns that may be chosen.

A list holds the keys and columns, ascending, of a segment's scores that reach a bound which at
least k columns of the row reach. `select_bisect` says where that bound comes from.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from payload.indexer import select_tile as tile
from payload.indexer.select_cut import SEGMENT, Cut, Workspace
from payload.indexer.select_tile import LEAST, QUAD

STEP = tl.constexpr(256)  # quads that one program looks through at once


@triton.jit
def _write_quads(row, i_segment, length, bound, quads, SEGMENT: tl.constexpr, FAN: tl.constexpr):
    """Write the numbers of a segment's quads in whose block something reaches the bound.

    Returns how many they are.
    """
    o_quad = i_segment * (SEGMENT // QUAD) + tl.arange(0, SEGMENT // QUAD)
    m_load = o_quad < tl.cdiv(length, QUAD * QUAD) * QUAD  # constant over what is loaded at once
    b_best = tl.load(row + o_quad // (FAN // QUAD), mask=m_load, other=0.0)
    b_best = tl.where(b_best == b_best, b_best, 0.0)  # noqa: PLR0124 - foreign bytes may be NaN
    m_quad = tile.key_of(b_best, o_quad * QUAD < length) >= bound
    b_one = m_quad.to(tl.int32)
    tl.store(quads + tl.cumsum(b_one, axis=0) - b_one, o_quad, mask=m_quad)
    return tl.sum(b_one)


@triton.jit
def _list_found(b_key, o_first, bound, found, keys, columns, SHARE: tl.constexpr):
    """List the keys of a tile that reach the bound, and their columns, behind `found` others.

    Returns how many are found now, which may be more than there is room for.
    """
    b_count = tl.sum(tl.where(b_key >= bound, 1, 0), axis=1)
    o_place = found + tl.cumsum(b_count, axis=0) - b_count
    quad = tile.quarters(b_key)
    for i in tl.static_range(QUAD):
        m_found = quad[i] >= bound
        m_store = m_found & (o_place < SHARE)
        tl.store(keys + o_place, quad[i], mask=m_store)
        tl.store(columns + o_place, o_first + i, mask=m_store)
        o_place += m_found.to(tl.int32)
    return found + tl.sum(b_count)


@triton.jit
def _list_kernel(
    logits,  # [B, S] float32
    lengths,  # [B] int32
    maxima,  # [B, S / FAN] float32
    candidates,  # [B, words] int32
    logits_stride,
    maxima_stride,
    candidates_stride,
    columns,
    k,
    groups,
    GROUPS: tl.constexpr,
    SEGMENTS: tl.constexpr,
    SEGMENT: tl.constexpr,
    SHARE: tl.constexpr,
    FAN: tl.constexpr,
    VECTOR: tl.constexpr,
    EARLY: tl.constexpr,
):
    """List the columns of a segment that reach the least bound of the row's groups."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    i_segment = tl.program_id(0)
    i_row = tl.program_id(1).to(tl.int64)
    length = tile.load_length(lengths, i_row, columns)
    logits += i_row * logits_stride
    keys = candidates + i_row * candidates_stride
    counts = keys + 2 * SEGMENTS * SHARE
    bounds = counts + SEGMENTS
    quads = bounds + GROUPS + i_segment * (SEGMENT // QUAD)
    keys += i_segment * SHARE
    o_group = tl.arange(0, GROUPS)
    b_bound = tl.load(bounds + o_group, mask=o_group < groups, other=2**31 - 1)
    bound = tl.maximum(tl.min(b_bound), LEAST + 1)
    wanted = _write_quads(
        maxima + i_row * maxima_stride, i_segment, length, bound, quads, SEGMENT, FAN
    )
    tl.debug_barrier()  # the quads just written are read by other threads
    found, start = 0, 0
    while start < wanted:
        o_slot = start + tl.arange(0, STEP)
        o_first = tl.load(quads + o_slot, mask=o_slot < wanted, other=-1) * QUAD
        b_key = tile.load_keys(logits, o_first, length, VECTOR)
        found = _list_found(b_key, o_first, bound, found, keys, keys + SEGMENTS * SHARE, SHARE)
        start += STEP
    tl.store(counts + i_segment, found)


@triton.jit
def _places(counts, o_quad, room, SEGMENTS: tl.constexpr, SHARE: tl.constexpr):
    """Return where lists lie that are read one behind the other: for each quad of the tile.

    Its first place in the lists, and how many entries lie there before the list ends; and whether
    all of them have room in the tile.
    """
    o_from, b_left, end = o_quad * 0, o_quad * 0, 0
    for i in tl.static_range(SEGMENTS):
        count = tl.minimum(tl.maximum(tl.load(counts + i), 0), SHARE)
        o_here = (o_quad - end) * QUAD
        o_from = tl.where(o_here >= 0, i * SHARE + o_here, o_from)
        b_left = tl.where(o_here >= 0, count - o_here, b_left)
        end += tl.cdiv(count, QUAD)
    return o_from, b_left, end <= room


@triton.jit
def choose_listed(keys, length, k, chosen, K, SEGMENTS, SPREAD, SHARE, ROOM) -> tl.tensor:
    """Choose from the lists of a row if they are whole and fit; return whether they did.

    Lists of usual scores are so even that each has its own part of the tile.
    """
    counts = keys + 2 * SEGMENTS * SHARE
    o_segment = tl.arange(0, SPREAD)
    longest = tl.max(tl.load(counts + o_segment, mask=o_segment < SEGMENTS, other=0))
    o_quad = tl.arange(0, ROOM // QUAD)
    part: tl.constexpr = ROOM // QUAD // SPREAD
    is_whole = longest <= SHARE
    if longest <= part * QUAD:
        o_here = o_quad % part * QUAD
        o_from = o_quad // part * SHARE + o_here
        m_segment = o_quad // part < SEGMENTS
        b_left = tl.load(counts + o_quad // part, mask=m_segment, other=0) - o_here
    else:
        o_from, b_left, is_fit = _places(counts, o_quad, ROOM // QUAD, SEGMENTS, SHARE)
        is_whole = is_whole & is_fit
    if is_whole:
        m_listed = tl.arange(0, QUAD)[None, :] < b_left[:, None]
        o_listed = tile.columns_of(o_from)
        b_key = tl.load(keys + o_listed, mask=m_listed, other=LEAST)
        b_column = tl.load(keys + SEGMENTS * SHARE + o_listed, mask=m_listed, other=-1)
        m_valid = b_column.to(tl.uint32, bitcast=True) < length.to(tl.uint32)
        b_key = tl.where(m_valid, b_key, LEAST)
        low = tile.least_of(b_key)
        tile.choose(b_key, b_column, low, tile.count_of(b_key, LEAST + 1, k), k, chosen, K)
    return is_whole


def list_candidates(logits: Tensor, lengths: Tensor, cut: Cut, workspace: Workspace) -> None:
    """Fill the lists of candidates, by the maxima and the bounds."""
    maxima, candidates = workspace.maxima, workspace.candidates
    is_early = cut.starts_early(logits.device)
    _list_kernel[(cut.segments, logits.shape[0])](
        logits,
        lengths,
        maxima,
        candidates,
        logits.stride(0),
        maxima.stride(0),
        candidates.stride(0),
        cut.columns,
        cut.k,
        cut.groups,
        GROUPS=triton.next_power_of_2(cut.groups),
        SEGMENTS=cut.segments,
        SEGMENT=SEGMENT,
        SHARE=cut.share,
        FAN=cut.fan,
        VECTOR=cut.vector,
        EARLY=is_early,
        num_warps=4,
        launch_pdl=is_early,
    )
