"""What the top-k kernels do with a tile of scores on chip: load it, bound it, write what is chosen.

A tile is `[R, 4]`, so that a thread loads four scores side by side; `QUAD` is that four.
"""

from __future__ import annotations

import triton
import triton.language as tl

QUAD = tl.constexpr(4)  # scores side by side in a tile: 16 bytes, what a thread loads at once
LEAST = tl.constexpr(-(2**31))  # the key of what is not there; scores have larger ones


@triton.jit
def load_length(lengths, i_row, columns) -> tl.tensor:
    """Return a row's length; what is out of range means none or all."""
    return tl.minimum(tl.maximum(tl.load(lengths + i_row), 0), columns)


@triton.jit
def load_scores(row, o_first, length, VECTOR: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
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
def key_of(b_score, m_valid) -> tl.tensor:
    """Return int32 keys that sort as the scores do; `LEAST` for what is not valid."""
    bits = (b_score + 0.0).to(tl.int32, bitcast=True)  # the sum turns -0.0 into 0.0
    return tl.where(m_valid, bits ^ ((bits >> 31) & 0x7FFFFFFF), LEAST)


@triton.jit
def load_keys(row, o_first, length, VECTOR: tl.constexpr) -> tl.tensor:
    """Return the keys `[R, 4]` of a row's scores from columns `o_first[R]`."""
    b_score, m_valid = load_scores(row, o_first, length, VECTOR)
    return key_of(b_score, m_valid)


@triton.jit
def least_of(b_key) -> tl.tensor:
    """Return the least key of those that are there; a huge one if none is."""
    return tl.min(tl.where(b_key == LEAST, 2**31 - 1, b_key))


@triton.jit
def count_of(b_key, low, k) -> tl.tensor:
    """Return how many keys reach `low`."""
    # Given sums of plain truth values, the compiler packs them into bits: twice the instructions.
    return tl.sum(tl.where(b_key >= low, tl.minimum(k, 1), 0))


@triton.jit
def columns_of(o_first) -> tl.tensor:
    """Return the columns `[R, 4]` of a tile whose rows start at `o_first[R]`."""
    return o_first[:, None] + tl.arange(0, QUAD)[None, :]


@triton.jit
def raise_bound(b_key, low, reaching, k, slack) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Raise `low`, which `reaching` keys reach, until at most `slack` more than k do.

    Or until all that reach it are equal. Returns it, how many reach it, and how many lie beyond it
    where those are equal.
    """
    high = tl.max(b_key) + 1
    beyond = 0
    span = (high - low).to(tl.uint32, bitcast=True)
    one = tl.minimum(k, 1)  # see count_of
    while (reaching > k + slack) & (span > 1):
        part = (reaching - k + 0.5) / (reaching - beyond)
        step = (span.to(tl.float32) * tl.minimum(0.7 * part, 0.75)).to(tl.uint32)
        near = low + tl.minimum(tl.maximum(step, 1), span - 1).to(tl.int32, bitcast=True)
        step = (span.to(tl.float32) * tl.maximum(part, 0.25)).to(tl.uint32)
        far = low + tl.minimum(tl.maximum(step, 1), span - 1).to(tl.int32, bitcast=True)
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
def quarters(b_tile) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the four columns of a tile `[R, 4]`, each `[R]`; nothing moves between threads."""
    b_even, b_odd = tl.split(tl.reshape(b_tile, [b_tile.shape[0], 2, 2]))
    b_0, b_2 = tl.split(b_even)
    b_1, b_3 = tl.split(b_odd)
    return b_0, b_1, b_2, b_3


@triton.jit
def _write(b_key, b_column, bound, k, chosen):
    """Write the columns whose keys reach the bound, in order; they are at most k."""
    b_count = tl.sum((b_key >= bound).to(tl.int32), axis=1)
    o_place = tl.cumsum(b_count, axis=0) - b_count  # how many came before
    keys, columns = quarters(b_key), quarters(b_column)
    for i in tl.static_range(QUAD):
        m_chosen = keys[i] >= bound
        tl.store(chosen + o_place, columns[i], mask=m_chosen & (o_place < k))
        o_place += m_chosen.to(tl.int32)


@triton.jit
def _write_with_ties(b_key, b_column, bound, wanted, k, chosen):
    """Write the columns beyond the bound, and the first `wanted` of those that equal it."""
    # Two running sums in one: above in the low half, equal in the high one.
    b_count = tl.sum((b_key > bound).to(tl.int32) + ((b_key == bound).to(tl.int32) << 16), axis=1)
    b_before = tl.cumsum(b_count, axis=0) - b_count
    keys, columns = quarters(b_key), quarters(b_column)
    for i in tl.static_range(QUAD):
        m_above, m_equal = keys[i] > bound, keys[i] == bound
        b_equal = b_before >> 16
        o_place = (b_before & 0xFFFF) + tl.minimum(b_equal, wanted)
        m_chosen = (m_above | (m_equal & (b_equal < wanted))) & (o_place < k)
        tl.store(chosen + o_place, columns[i], mask=m_chosen)
        b_before += m_above.to(tl.int32) + (m_equal.to(tl.int32) << 16)


@triton.jit
def choose(b_key, b_column, low, reaching, k, chosen, K: tl.constexpr) -> tl.tensor:
    """Write the columns of the k best of a tile `[R, 4]`, in its order, and -1 behind them.

    Args:
        b_key: their keys, `LEAST` where there is no column.
        b_column: their columns, ascending where there are any.
        low: a key that at least k reach, or all of them if they are fewer.
        reaching: how many reach it.
        k: how many to choose.
        chosen: where to write k columns.
        K: room for k.

    Returns the key that k reach, or LEAST + 1 if they are fewer.
    """
    bound, reaching, beyond = raise_bound(b_key, low, reaching, k, 0)
    if reaching <= k:
        _write(b_key, b_column, bound, k, chosen)
    else:
        _write_with_ties(b_key, b_column, bound, k - beyond, k, chosen)
    o_tail = reaching + tl.arange(0, K)
    tl.store(chosen + o_tail, -1, mask=o_tail < k)
    return tl.where(reaching >= k, bound, LEAST + 1)
