"""Cache variants keep the same contract, and the canary sees every stray write."""

import pytest
import torch

from payload.cache import bf16, fp8, guarded, layout
from payload.cache.contract import CacheParts, StrayWrite
from payload.cache.layout import KeyFormat
from payload.flags import Flags

VARIANTS = {module.NAME: module for module in (bf16, fp8, guarded)}
DEFAULTS = {"bf16": KeyFormat.BF16, "fp8": KeyFormat.FP8, "guarded": KeyFormat.BF16}
PAGES, DIM = 6, 128


@pytest.fixture(params=VARIANTS)
def name(request):
    return request.param


def build(name, device, **flags):
    parts = CacheParts(2, PAGES, DIM, 2 * DIM, Flags(**flags), device)
    return VARIANTS[name].build(parts)


def write(cache, layer, slots):
    pool = cache.pools.index_keys[layer]
    where = torch.tensor(slots, device=pool.device)
    layout.store(pool, where, torch.randn(len(slots), DIM, device=pool.device))


def test_pools_are_zero_and_have_the_layout_of_their_format(name, device):
    cache = build(name, device)

    assert cache.key_format is DEFAULTS[name]
    assert len(cache.pools.index_keys) == len(cache.pools.kv) == 2
    assert cache.pools.index_keys[0].nbytes == PAGES * layout.page_bytes(DIM, DEFAULTS[name])
    assert cache.pools.kv[0].shape == (PAGES, 64, 2 * DIM)
    assert all(not pool.view(torch.uint8).any() for pool in cache.pools.index_keys)


@pytest.mark.parametrize("bf16_index_k", [True, False])
def test_a_flag_that_is_set_beats_the_variants_format(name, device, bf16_index_k):
    cache = build(name, device, bf16_index_k=bf16_index_k)

    assert cache.key_format is (KeyFormat.BF16 if bf16_index_k else KeyFormat.FP8)


def test_expected_writes_are_silent(name, device):
    cache = build(name, device, idxk_canary=True)

    cache.expect([1, 2])
    cache.expect([4])
    write(cache, 0, [64, 2 * 64 + 63])
    write(cache, 1, [4 * 64])

    assert cache.verify() == ()


def test_the_canary_names_layer_and_page_of_a_stray_write_once(name, device):
    cache = build(name, device, idxk_canary=True)

    cache.expect([1])
    write(cache, 1, [64, 3 * 64 + 5])

    assert cache.verify() == (StrayWrite(layer=1, page=3),)
    assert cache.verify() == ()


def test_what_was_expected_once_is_not_expected_again(name, device):
    cache = build(name, device, idxk_canary=True)
    cache.expect([1])
    cache.verify()

    write(cache, 0, [64])

    assert cache.verify() == (StrayWrite(0, 1),)


def test_a_single_bit_is_seen_and_nan_equals_itself(device):
    cache = build("guarded", device)
    pool = cache.pools.index_keys[0]
    cache.expect([2])
    pool[2] = float("nan")
    assert cache.verify() == ()

    pool.view(torch.int16)[5, 63, 127] ^= 1

    assert cache.verify() == (StrayWrite(0, 5),)


def test_installed_but_off_the_canary_sees_nothing_and_keeps_no_shadow(name, device):
    cache = build(name, device, idxk_canary=False)

    write(cache, 0, [3 * 64])

    assert cache.verify() == ()
    assert not hasattr(cache, "_shadows")


def test_only_guarded_watches_unless_told(device):
    watching = {name for name in VARIANTS if hasattr(build(name, device), "_shadows")}

    assert watching == {"guarded"}
