"""The arena hands out memory by the rule of a GPU's caching allocator."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.device.arena import ROUND_BYTES, Arena

KIB = 1024


def floats(arena, kib):
    return arena.empty((kib * KIB // 4,), torch.float32)


def test_a_freed_block_is_given_to_the_next_request_at_once():
    arena = Arena(64 * KIB)
    first = floats(arena, 4)
    address = arena.address_of(first)
    floats(arena, 4)  # dies at once, too: nothing is held back

    del first
    second = floats(arena, 4)

    assert arena.address_of(second) == address


def test_a_view_keeps_the_block_until_the_last_one_is_gone():
    arena = Arena(64 * KIB)
    first = floats(arena, 4)
    view = first[8:].view(torch.int32)
    address = arena.address_of(first)

    del first
    other = floats(arena, 4)
    assert arena.address_of(other) != address
    del view
    assert arena.address_of(floats(arena, 4)) == address


def test_an_alias_keeps_nothing_alive_and_shares_the_bytes():
    arena = Arena(64 * KIB)
    first = floats(arena, 4)
    alias = arena.alias(first.view(32, 32)[1:, 3])

    del first
    second = floats(arena, 4)
    second.zero_()
    alias.fill_(7)

    assert second.view(32, 32)[1:, 3].eq(7).all()
    assert int(second.count_nonzero()) == alias.numel()


def test_the_smallest_block_that_fits_is_taken_and_split():
    arena = Arena(64 * KIB)
    large, fence, small, end = (floats(arena, kib) for kib in (16, 1, 4, 1))
    large_address, small_address = arena.address_of(large), arena.address_of(small)
    assert fence.numel()
    assert end.numel()

    del large, small
    fits_small = floats(arena, 3)
    fits_large = floats(arena, 8)

    assert arena.address_of(fits_small) == small_address
    assert arena.address_of(fits_large) == large_address


def test_neighbours_merge_so_that_a_larger_request_fits():
    arena = Arena(16 * KIB)
    parts = [floats(arena, 4) for _ in range(4)]
    with pytest.raises(MemoryError, match="no free block"):
        floats(arena, 1)

    del parts[1:3]

    assert floats(arena, 8).numel() == 2 * KIB


def test_a_tensor_of_other_memory_is_not_in_the_arena():
    arena = Arena(16 * KIB)

    assert arena.address_of(torch.zeros(4)) is None
    with pytest.raises(ValueError, match="does not lie"):
        arena.alias(torch.zeros(4))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3000)), max_size=60))
def test_living_blocks_never_overlap_and_all_memory_comes_back(actions):
    size = 1 << 20
    arena = Arena(size)
    living = []
    for is_free, count in actions:
        if is_free and living:
            living.pop(count % len(living))
        else:
            tensor = arena.empty((count,), torch.float32)
            living.append((arena.address_of(tensor), tensor))
        spans = sorted((address, tensor.nbytes) for address, tensor in living)
        pairs = pairwise(spans)
        assert all(start + nbytes <= following for (start, nbytes), (following, _) in pairs)
        assert all(start % ROUND_BYTES == 0 for start, _ in spans)

    living.clear()
    tensor = None
    assert [block.size_bytes for block in arena.free_blocks] == [size]
