"""Every indexer variant gives the reference's slots, eagerly and captured, and rows equal it."""

import pytest
import torch

from payload.cache.layout import PAGE_TOKENS, KeyFormat
from payload.device.cpu import CpuDevice
from payload.indexer import eager, persistent_all, persistent_logits, reference, rows, transient
from payload.indexer.contract import IndexerCall, IndexerParts, to_slots
from payload.indexer.kernel_case import random_case
from payload.numerics import assert_close, tolerance

VARIANTS = {module.NAME: module for module in (transient, persistent_logits, persistent_all, eager)}
PARTS = IndexerParts(score=rows.index_logits, select=rows.select_topk)
LENGTHS = [0, 1, 5, 63, 64, 65, 200, 256]
CAPACITY = 256
TOP_K = 16


@pytest.fixture(params=VARIANTS)
def indexer(request):
    return VARIANTS[request.param].build(PARTS)


@pytest.fixture(params=[KeyFormat.BF16, KeyFormat.FP8], ids=lambda one: one.value)
def case(request):
    return random_case(LENGTHS, request.param, heads=16, dim=64, device="cpu")


def call_of(case):
    table = case.page_table
    return IndexerCall(
        layer=0,
        q=case.q.to(torch.bfloat16),
        weights=case.weights,
        k_pages=case.k_pages,
        page_table=table,
        lengths=case.lengths,
        capacity=CAPACITY,
        top_k=TOP_K,
    )


def right_slots(call):
    logits = torch.full((call.rows, call.capacity), float("nan"))
    inputs = (call.q, call.weights, call.k_pages, call.page_table, call.lengths)
    reference.index_logits(*inputs, out=logits)
    columns = reference.select_topk(logits, call.lengths, call.top_k)
    return [
        sorted(
            -1 if column < 0 else int(row_table[column // PAGE_TOKENS]) * PAGE_TOKENS + column % 64
            for column in row
        )
        for row, row_table in zip(columns.tolist(), call.page_table, strict=True)
    ]


def as_sets(slots):
    return [sorted(row) for row in slots.tolist()]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_variant_gives_the_references_slots(indexer, case, overlap):
    device, call = CpuDevice(overlap=overlap), call_of(case)

    slots = indexer.select(device, call)
    device.join()

    assert as_sets(slots) == right_slots(call)
    device.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_a_captured_variant_gives_the_references_slots_at_every_replay(indexer, case, overlap):
    device, call = CpuDevice(overlap=overlap), call_of(case)
    answer = torch.zeros((call.rows, TOP_K), dtype=torch.int32)

    def body():
        slots = indexer.select(device, call)
        device.join()
        device.launch(copy, slots, out=answer)

    graph = device.capture(body)
    for seed in (1, 2):
        call.q.copy_(torch.randn(call.q.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert as_sets(answer) == right_slots(call)
    device.close()


def copy(source, *, out):
    out.copy_(source)


def test_rows_score_as_the_reference_and_touch_nothing_else(case):
    out = torch.full((len(LENGTHS), CAPACITY), 777.0)
    inputs = (case.q, case.weights, case.k_pages, case.page_table, case.lengths)
    truth = reference.index_logits(*inputs, out=torch.zeros(len(LENGTHS), CAPACITY))

    rows.index_logits(*inputs, out=out)

    for row, length in enumerate(LENGTHS):
        assert_close(out[row, :length], truth[row, :length], tolerance(torch.float32))
        assert out[row, length:].eq(777).all()


def test_rows_select_as_the_reference_also_among_ties_and_garbage():
    logits = torch.randint(-3, 3, (len(LENGTHS), CAPACITY)).float()
    logits[:, 1::17] = float("nan")
    logits[:, 3::29] = float("inf")
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    out = torch.empty((len(LENGTHS), TOP_K), dtype=torch.int32)

    rows.select_topk(logits, lengths, out=out)

    assert as_sets(out) == as_sets(reference.select_topk(logits, lengths, TOP_K))


def test_columns_overwritten_by_another_stream_become_slots_of_the_pool():
    table = torch.tensor([[3, 1], [2, 5]], dtype=torch.int32)
    garbage = torch.tensor([[0, 127, 1 << 30, -(1 << 30)], [-1, 64, 2**31 - 1, -(2**31)]])
    out = torch.empty((2, 4), dtype=torch.int32)

    to_slots(garbage.int(), table, out=out)

    assert out.tolist() == [[192, 127, 127, -1], [-1, 320, 383, -1]]


def test_kept_buffers_are_made_once_for_each_shape(case):
    indexer, device, call = persistent_all.build(PARTS), CpuDevice(overlap=False), call_of(case)

    indexer.select(device, call)
    size = indexer.kept.size_bytes
    indexer.select(device, call)

    assert indexer.kept.size_bytes == size
    assert size == call.rows * (CAPACITY + 2 * TOP_K) * 4
    device.close()
