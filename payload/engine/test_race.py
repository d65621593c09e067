"""The race is real: some order of two unordered streams makes wrong tokens, from memory alone.

`ScheduledDevice` runs the recorded kernels at their recorded addresses in an order that the
recorded events allow. Nothing else is changed: what is wrong is wrong because two tensors share
bytes.
"""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.device.cpu import MAIN, SIDE, CpuDevice
from payload.device.hazards import hazards
from payload.device.schedules import ScheduledDevice, main_before, main_first, side_first
from payload.engine.bench_rates import Trial
from payload.engine.config import EngineConfig, ModelConfig
from payload.engine.oracle import expected
from payload.engine.testing import answers, small_engine
from payload.indexer import rows

CONFIG = EngineConfig(model=ModelConfig(depth=3), max_batch=8, context_tokens=1024, cache_pages=200)
WORDS = ("amber", "river", "stone", "lake", "moon", "paper", "bridge", "candle")
ORDERED = [
    ("transient", "ordered_streams"),
    ("persistent_logits", "ordered_streams"),
    ("persistent_all", "captured"),
    ("persistent_all", "ordered_streams"),
    ("eager", "captured"),
]


def asked(count):
    draw = random.Random(3)
    # The longest first, as rows are ordered: the place in the list is the row.
    texts = [
        " ".join(draw.choice(WORDS) for _ in range(max(220 - 7 * n, 90))) for n in range(count)
    ]
    return [{"messages": [{"role": "user", "content": text}]} for text in texts]


def wrong_rows(assembly, count=8):
    bodies = asked(count)
    heard = answers(assembly, bodies)
    tokenizer = assembly.engine.tokenizer
    return [
        row
        for row, (body, one) in enumerate(zip(bodies, heard, strict=True))
        if one.tokens != list(expected(body, tokenizer).tokens)
    ]


@pytest.fixture(scope="module")
def make_engine():
    made = {}

    def make(indexer, runner, rule, *, overlap=True):
        key = (indexer, runner, overlap)
        if key not in made:
            device = ScheduledDevice(rule, overlap=overlap)
            made[key] = small_engine(indexer=indexer, runner=runner, config=CONFIG, device=device)
        made[key].device.rule = rule
        return made[key]

    yield make
    for assembly in made.values():
        assembly.device.close()


def test_a_write_between_score_and_select_corrupts_the_first_rows_only(make_engine):
    assembly = make_engine("transient", "captured", main_before("select_topk"))

    rows = wrong_rows(assembly)

    assert 0 in rows
    assert len(rows) < 4, "a part of the query covers the scores of few rows"


def test_the_same_graph_is_right_when_the_indexer_comes_first(make_engine):
    assembly = make_engine("transient", "captured", side_first)

    assert wrong_rows(assembly) == []


def test_persistent_logits_leave_a_smaller_window(make_engine):
    safe = make_engine("persistent_logits", "captured", main_before("select_topk"))
    assert wrong_rows(safe) == []

    late = make_engine("persistent_logits", "captured", main_before("to_slots"))
    assert wrong_rows(late) == [0]


@pytest.fixture
def ascending_columns(monkeypatch):
    """Let the columns that are chosen ascend, as on a GPU; here the best comes first."""
    best_first = rows.select_topk

    def select_topk(logits, lengths, *, out):
        best_first(logits, lengths, out=out)
        last = torch.iinfo(out.dtype).max
        ascending = out.where(out >= 0, last).sort(dim=1).values
        out.copy_(ascending.where(ascending < last, -1))

    monkeypatch.setattr(rows, "select_topk", select_topk)


@pytest.mark.usefixtures("ascending_columns")
def test_the_window_is_there_also_where_what_a_layer_looks_for_stands_last():
    """A tool call's values are at the end of a long context: the last columns of their row.

    Two lengths a query cover row 0 and few columns of row 1, in the bucket of the story's sessions
    and in the largest; whoever is in row 0 ends there, once in each round.
    """
    device = ScheduledDevice(main_before("to_slots"))
    shape = replace(CONFIG.model, norm_groups=2)
    config = replace(CONFIG, model=shape, max_batch=44, cache_pages=600)
    assembly = small_engine(indexer="persistent_logits", config=config, device=device)

    trial = Trial(assembly, sessions=40, rounds=3, words=200, seed=1)
    trial.run()

    device.close()
    assert [session.round for session in trial.sessions if session.wrong] == [1, 2, 3]
    for bucket in (40, 44):
        graph = assembly.runner._captured[bucket].graph
        shared = {hazard.shared_bytes for hazard in hazards(graph) if hazard.main.is_write}
        assert shared == {bucket * 2 * 4}


def test_one_row_is_never_wrong_because_its_blocks_fit_elsewhere(make_engine):
    for indexer in ("transient", "persistent_logits"):
        for rule in (main_before("select_topk"), main_before("to_slots"), main_first):
            assembly = make_engine(indexer, "captured", rule)
            assert wrong_rows(assembly, count=1) == []


@pytest.mark.parametrize(("indexer", "runner"), ORDERED)
@pytest.mark.parametrize("kernel", ["index_logits", "select_topk", "to_slots", "nothing"])
def test_ordered_variants_are_right_wherever_the_main_stream_runs_ahead(
    make_engine, indexer, runner, kernel
):
    rule = main_first if kernel == "nothing" else main_before(kernel)

    assert wrong_rows(make_engine(indexer, runner, rule)) == []


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_ordered_streams_are_right_in_any_order(make_engine, draw):
    assembly = make_engine("transient", "ordered_streams", lambda _: draw.choice((MAIN, SIDE)))

    assert wrong_rows(assembly) == []


def test_without_overlap_and_without_graphs_the_worst_order_is_right(make_engine):
    rule = main_before("select_topk")

    assert wrong_rows(make_engine("transient", "captured", rule, overlap=False)) == []
    assert wrong_rows(make_engine("transient", "eager", rule)) == []


@pytest.mark.parametrize(
    ("indexer", "runner", "victims"),
    [
        ("transient", "captured", {"index_logits", "select_topk", "to_slots"}),
        ("persistent_logits", "captured", {"select_topk", "to_slots"}),
        *((indexer, runner, set()) for indexer, runner in ORDERED),
    ],
)
def test_the_graph_itself_tells_which_accesses_may_race(make_engine, indexer, runner, victims):
    assembly = make_engine(indexer, runner, side_first)

    found = {
        bucket: {hazard.side.kernel for hazard in hazards(captured.graph)}
        for bucket, captured in assembly.runner._captured.items()
    }

    assert found[8] == victims
    assert found[1] == set()


@pytest.mark.slow
def test_two_free_running_streams_corrupt_tokens_within_a_bounded_number_of_steps():
    """The depth is swept, so that on any machine some main branch ends inside the window."""
    wrong = 0
    for depth in (6, 12, 20, 30, 45, 64) * 3:
        config = EngineConfig(model=ModelConfig(depth=depth), max_batch=48)
        device = CpuDevice(overlap=True)
        assembly = small_engine(config=config, device=device)
        wrong += len(wrong_rows(assembly, count=40))
        device.close()
        if wrong:
            break

    assert wrong
