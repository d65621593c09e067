"""Keys come back as they were stored, from pages that lie as in production."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.cache import layout
from payload.cache.layout import PAGE_TOKENS, KeyFormat

PAGES, DIM = 6, 32


@pytest.fixture(params=KeyFormat, ids=lambda key_format: key_format.value)
def key_format(request):
    return request.param


def as_stored(keys, key_format):
    """Return what a key reads back as, by independent arithmetic."""
    if key_format is not KeyFormat.FP8:
        return keys.to(layout.PLAIN_DTYPES[key_format])
    return torch.stack(
        [
            ((key / (key.abs().max() / 448)).to(torch.float8_e4m3fn).float())
            * (key.abs().max() / 448)
            for key in keys
        ]
    )


@pytest.mark.parametrize(
    ("key_format", "expected"),
    [(KeyFormat.FP8, 8448), (KeyFormat.BF16, 16384), (KeyFormat.FP32, 32768)],
)
def test_a_page_of_128_wide_keys_has_the_bytes_of_production(key_format, expected):
    pool = layout.allocate(3, 128, key_format)

    assert layout.page_bytes(128, key_format) == expected
    assert pool.nbytes == 3 * expected
    assert pool[0].nbytes == expected


def test_keys_come_back_from_the_slots_they_were_stored_in(key_format):
    pool = layout.allocate(PAGES, DIM, key_format)
    slots = torch.randperm(PAGES * PAGE_TOKENS)[:100]
    keys = torch.randn(100, DIM)

    layout.store(pool, slots, keys)

    torch.testing.assert_close(
        layout.gather(pool, slots), as_stored(keys, key_format), rtol=1e-6, atol=0
    )


def test_a_store_touches_no_other_slot(key_format):
    pool = layout.allocate(PAGES, DIM, key_format)
    layout.store(pool, torch.arange(PAGES * PAGE_TOKENS), torch.randn(PAGES * PAGE_TOKENS, DIM))
    before = pool.clone()
    slots = torch.tensor([63, 64, 200], dtype=torch.int32)

    layout.store(pool, slots, torch.randn(3, DIM))

    others = [slot for slot in range(PAGES * PAGE_TOKENS) if slot not in slots.tolist()]
    other_slots = torch.tensor(others)
    assert torch.equal(layout.gather(pool, other_slots), layout.gather(before, other_slots))
    assert torch.equal(pool.view(torch.uint8)[4:], before.view(torch.uint8)[4:])


def test_an_fp8_page_is_block_planar():
    pool = layout.allocate(2, DIM, KeyFormat.FP8)
    keys = torch.randn(1, DIM)

    layout.store(pool, torch.tensor([PAGE_TOKENS + 3]), keys)

    page = pool[1]
    values = page[3 * DIM : 4 * DIM].view(torch.float8_e4m3fn).float()
    scale = page[PAGE_TOKENS * DIM + 12 : PAGE_TOKENS * DIM + 16].view(torch.float32)
    torch.testing.assert_close(values * scale, as_stored(keys, KeyFormat.FP8)[0])
    assert scale.item() == pytest.approx(keys.abs().max().item() / 448)
    assert pool[0].count_nonzero() == 0
    assert page.count_nonzero() <= DIM + 4


def test_planes_share_the_memory_of_the_pool(key_format):
    pool = layout.allocate(2, DIM, key_format)

    values, _ = layout.planes(pool)
    values[1, 63, DIM - 1] = 1.0

    assert values.data_ptr() == pool.data_ptr()
    assert layout.planes(pool).values[1, 63, DIM - 1] == 1.0


def test_whole_pages_come_back_unscaled_in_the_order_asked_for(key_format):
    pool = layout.allocate(PAGES, DIM, key_format)
    layout.store(pool, torch.arange(PAGES * PAGE_TOKENS), torch.randn(PAGES * PAGE_TOKENS, DIM))
    page_ids = torch.tensor([[4, 0], [2, 2]])

    values, scales = layout.gather_pages(pool, page_ids)

    wide = values.float() if scales is None else layout.dequantise(values, scales)
    slots = (page_ids.unsqueeze(2) * PAGE_TOKENS + torch.arange(PAGE_TOKENS)).flatten(1)
    assert torch.equal(wide, layout.gather(pool, slots).float())


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-40, 1e-30, 1.0, 1e30])
def test_every_finite_row_quantises_to_finite_numbers(size):
    keys = torch.randn(4, DIM) * size

    values, scales = layout.quantise(keys)

    assert values.float().isfinite().all()
    assert (scales > 0).all()
    assert layout.dequantise(values, scales).isfinite().all()


def test_a_row_of_zeros_reads_back_as_zeros():
    assert torch.equal(
        layout.dequantise(*layout.quantise(torch.zeros(2, DIM))), torch.zeros(2, DIM)
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=4, max_size=4),
)
def test_quantising_is_off_by_at_most_half_a_step_of_e4m3(row):
    keys = torch.tensor([row])

    values, scales = layout.quantise(keys)

    error = (layout.dequantise(values, scales) - keys).abs()
    step = torch.maximum(keys.abs() / 16, scales.unsqueeze(1) * 2**-10)
    assert (error <= step * (1 + 1e-5)).all()


def test_a_dim_whose_scales_would_not_be_aligned_is_refused():
    with pytest.raises(ValueError, match="multiple of 4"):
        layout.allocate(1, 6, KeyFormat.FP8)
