"""Runners pad, choose buckets and compare; what a batch gets does not depend on the runner."""

import logging
from dataclasses import replace

import pytest
import torch

from payload.device.cpu import CpuDevice
from payload.flags import Flags
from payload.indexer import rows, transient
from payload.indexer.contract import IndexerCall, IndexerParts
from payload.runner import captured, differential, eager, ordered_streams
from payload.runner.contract import Batch, Row, RunnerParts, StepInputs
from payload.runner.stash import differences

VARIANTS = {module.NAME: module for module in (eager, captured, differential, ordered_streams)}
PARTS = IndexerParts(score=rows.index_logits, select=rows.select_topk)
PAGES = 2
TOP_K = 8


@pytest.fixture(params=VARIANTS)
def name(request):
    return request.param


@pytest.fixture
def device():
    made = CpuDevice(overlap=True)
    yield made
    made.close()


def answer(slots, *, out):
    """A row's token: the sum of its slots, so that each one counts."""
    out.copy_(slots.long().sum(dim=1))


class Model:
    """A step that is nothing but an indexer."""

    def __init__(self, rows_at_most):
        self.pool = torch.randn(rows_at_most * PAGES + 1, 64, 32).bfloat16()
        self.indexer = transient.build(PARTS)
        self.launches = 0

    def step(self, device, inputs):
        self.launches += 1
        q = device.empty((inputs.token.shape[0], 2, 32), torch.bfloat16)
        device.launch(spread, inputs.token, out=q)
        weights = torch.ones((q.shape[0], 2))
        call = IndexerCall(
            layer=0,
            q=q,
            weights=weights,
            k_pages=self.pool,
            page_table=inputs.page_table,
            lengths=inputs.length,
            capacity=PAGES * 64,
            top_k=TOP_K,
            stash=inputs.stash,
        )
        slots = self.indexer.select(device, call)
        device.join()
        device.launch(answer, slots, out=inputs.next_token)


def spread(token, *, out):
    """A query for each token."""
    angle = torch.arange(64).view(2, 32) + token.view(-1, 1, 1)
    out.copy_(angle.float().sin())


def batch_of(count, *, length=100):
    row = Row(token=0, position=0, cursor=0, end=0, slot=64, length=length)
    table = 1 + torch.arange(count * PAGES, dtype=torch.int32).view(count, PAGES)
    return Batch(
        tuple(replace(row, token=place, slot=64 * (1 + 2 * place)) for place in range(count)),
        table,
    )


def make(name, device, *, buckets=(1, 2, 4), rows_at_most=6, **flags):
    model = Model(rows_at_most)
    inputs = StepInputs.allocate(rows_at_most, PAGES, torch.device("cpu"))
    log = logging.getLogger("payload.test")
    parts = RunnerParts(device, model.step, inputs, buckets, PARTS, Flags(**flags), log)
    runner = VARIANTS[name].build(parts)
    runner.prepare()
    return runner, model, parts


def eagerly(model, batch):
    inputs = StepInputs.allocate(len(batch.rows), PAGES, torch.device("cpu"))
    inputs.load(batch, len(batch.rows))
    device = CpuDevice(overlap=False)
    model.step(device, inputs)
    device.close()
    return inputs.next_token.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_every_runner_answers_as_an_eager_step(name, device, count):
    runner, model, _ = make(name, device)
    batch = batch_of(count)

    assert runner.step(batch) == eagerly(model, batch)
    shorter = batch_of(count, length=17)
    assert runner.step(shorter) == eagerly(model, shorter)


def test_buckets_are_captured_largest_first_with_two_warm_ups_each(name, device, caplog):
    caplog.set_level(logging.INFO)
    runner, model, _ = make(name, device)

    lines = [line for line in caplog.messages if line.startswith("capturing")]
    if name == "eager":
        assert (runner.buckets, lines, model.launches) == ((), [], 0)
        return
    assert runner.buckets == (1, 2, 4)
    assert lines == [f"capturing graph bs={size} ({n}/3)" for n, size in ((1, 4), (2, 2), (3, 1))]
    assert model.launches == 3 * 3


def test_a_replay_launches_nothing_and_a_batch_above_the_buckets_runs_eagerly(device):
    runner, model, _ = make("captured", device)
    before = model.launches

    runner.step(batch_of(3))
    assert model.launches == before
    runner.step(batch_of(5))
    assert model.launches == before + 1


def test_the_graph_key_is_logged_on_demand(device, caplog):
    caplog.set_level(logging.INFO)
    runner, *_ = make("captured", device, log_graph_key=True)
    for count in (3, 5):
        runner.step(batch_of(count))

    keys = [line for line in caplog.messages if line.startswith("decode graph key")]
    assert keys == ["decode graph key bs=4 raw=3", "decode graph key bs=eager raw=5"]


def test_padded_rows_are_empty_and_store_into_the_page_of_nobody(device):
    _, _, parts = make("captured", device)
    parts.inputs.load(batch_of(4), 4)

    parts.inputs.load(batch_of(1), 4)

    assert parts.inputs.length[:4].tolist() == [100, 0, 0, 0]
    assert parts.inputs.page_table[1:4].eq(0).all()
    stores = parts.inputs.slot[1:4].tolist()
    assert all(slot < 64 for slot in stores)
    assert len(set(stores)) == 3


@pytest.mark.parametrize("shape", [(1, 1), (1, PAGES), (3, 1), (3, PAGES - 1), (4, PAGES)])
def test_a_page_table_of_another_shape_is_refused_and_not_repeated(shape):
    inputs = StepInputs.allocate(6, PAGES, torch.device("cpu"))
    batch = batch_of(3)

    with pytest.raises(ValueError, match=f"is not \\(3, {PAGES}\\)"):
        inputs.load(replace(batch, page_table=torch.ones(shape, dtype=torch.int32)), 3)


@pytest.mark.parametrize(
    ("name", "flag", "compares"),
    [
        ("captured", None, False),
        ("captured", True, True),
        ("differential", None, True),
        ("differential", False, False),
        ("ordered_streams", True, True),
    ],
)
def test_the_flag_beats_the_variant_for_the_stash(device, name, flag, compares):
    runner, *_ = make(name, device, ge_diff=flag)

    runner.step(batch_of(3))

    assert bool(runner.findings()) is compares


def test_a_healthy_replay_differs_nowhere_and_only_valid_columns_count(device):
    runner, *_ = make("differential", device)
    for length in (100, 1, 65):
        runner.step(batch_of(3, length=length))

    assert runner.findings() == {
        "4": {
            "rows": 9,
            "mean_abs": 0.0,
            "max_abs": 0.0,
            "wild": 0,
            "argmax_differs": 0,
            "topk_differs": 0,
        }
    }


def test_what_the_captured_indexer_did_wrong_is_counted_by_row(device, caplog):
    caplog.set_level(logging.INFO)
    runner, _, _ = make("differential", device)
    batch = batch_of(4)
    runner.step(batch)
    stash = runner._captured[4].stash
    clone = stash.clones[0]
    copies = clone.logits.clone()

    copies[1, 7] = 1e6
    copies[2, 5] = float("nan")
    clone.logits.copy_(copies)
    clone.columns[3, 0] = -1
    runner._comparison.compare(stash, bucket=4, rows=4)

    found = runner.findings()["4"]
    assert found["rows"] == 8
    assert found["max_abs"] > 9e5
    assert (found["wild"], found["argmax_differs"], found["topk_differs"]) == (1, 2, 1)
    reported = [line for line in caplog.messages if line.startswith("[ge_diff]")]
    assert [line.split()[3] for line in reported] == ["row=1", "row=2", "row=3"]


def test_a_stash_is_refilled_at_each_replay(device):
    runner, *_ = make("differential", device)
    clone = runner._captured[4].stash.clones[0]
    runner.step(batch_of(4))
    first = clone.call.q.clone()

    changed = replace(batch_of(4), rows=tuple(replace(r, token=9) for r in batch_of(4).rows))
    runner.step(changed)

    assert not torch.equal(clone.call.q, first)


def test_the_cost_of_a_stash_counts_all_that_was_cloned(device):
    runner, *_ = make("differential", device)
    stash = runner._captured[4].stash

    cloned = [tensor for clone in stash.clones.values() for tensor in tensors_of(clone)]

    assert stash.size_bytes == sum(tensor.nbytes for tensor in cloned)


def tensors_of(clone):
    """Return its tensors but for the key pool, which is not cloned."""
    values = {**vars(clone), **vars(clone.call), "k_pages": None}.values()
    return [value for value in values if isinstance(value, torch.Tensor)]


def test_equal_infinities_are_no_difference_and_a_nan_is_one():
    logits = torch.tensor([[1.0, float("inf"), float("-inf"), float("nan"), 0.0]])
    columns = torch.tensor([[0, 1]], dtype=torch.int32)

    (gap,) = differences((logits, columns), (logits.clone(), columns), torch.tensor([4]))

    assert (gap.finite, gap.wild, gap.finite_sum) == (3, 1, 0)
