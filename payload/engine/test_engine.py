"""The engine equals the oracle, token for token, whatever is asked and however it runs."""

import random
from dataclasses import replace

import pytest

from payload.device.cpu import CpuDevice
from payload.engine.config import EngineConfig, ModelConfig
from payload.engine.conversations import random_body
from payload.engine.oracle import expected
from payload.engine.request import BadRequestError
from payload.engine.sequence import Ending
from payload.engine.testing import SMALL, answers, ask, small_engine
from payload.engine.tokenizer import Tokenizer
from payload.flags import Flags

HEALTHY = [
    ("transient", "eager", "bf16", True),
    ("transient", "ordered_streams", "bf16", True),
    ("transient", "captured", "bf16", False),
    ("persistent_all", "captured", "bf16", True),
    ("persistent_logits", "ordered_streams", "fp8", True),
    ("eager", "captured", "bf16", True),
    ("eager", "captured", "fp8", True),
    ("transient", "ordered_streams", "guarded", True),
    ("persistent_all", "differential", "fp8", True),
]


@pytest.fixture
def make_engine():
    made = []

    def make(*, overlap=True, **options):
        made.append(small_engine(device=CpuDevice(overlap=overlap), **options))
        return made[-1]

    yield make
    for assembly in made:
        assembly.device.close()


def bodies(count, seed, **options):
    return [random_body(random.Random(seed * 100_003 + place), **options) for place in range(count)]


def right(assembly, body):
    return list(expected(body, assembly.engine.tokenizer).tokens)


def plain(words):
    return {"messages": [{"role": "user", "content": " ".join(["water"] * words)}]}


@pytest.mark.parametrize(("indexer", "runner", "cache", "overlap"), HEALTHY)
def test_every_ordered_combination_equals_the_oracle(make_engine, indexer, runner, cache, overlap):
    assembly = make_engine(indexer=indexer, runner=runner, cache=cache, overlap=overlap)
    asked = bodies(8, seed=1, words=12)

    heard = answers(assembly, asked)

    assert [one.tokens for one in heard] == [right(assembly, body) for body in asked]
    assert {one.ending for one in heard} == {Ending.STOP}


@pytest.mark.slow
def test_a_thousand_random_conversations_equal_the_oracle(make_engine):
    config = replace(SMALL, max_batch=32, cache_pages=1000)
    assembly = make_engine(runner="ordered_streams", config=config)
    draw = random.Random(5)
    asked = bodies(1000, seed=2, words=8)
    for body in asked:
        body["max_tokens"] = draw.choice((1, 2, 4, 8, 16, 200))

    heard = answers(assembly, asked)

    for body, one in zip(asked, heard, strict=True):
        tokens = right(assembly, body)
        assert one.tokens == tokens[: body["max_tokens"]]
        is_cut = len(tokens) > body["max_tokens"]
        assert one.ending is (Ending.LENGTH if is_cut else Ending.STOP)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8, 9, 12])
def test_bucket_edges_and_larger_batches(make_engine, batch):
    config = replace(SMALL, max_batch=8)
    assembly = make_engine(runner="ordered_streams", config=config)
    asked = bodies(batch, seed=batch)

    heard = answers(assembly, asked)

    assert [one.tokens for one in heard] == [right(assembly, body) for body in asked]
    assert assembly.runner.buckets == (1, 2, 4, 8)


@pytest.mark.parametrize("words", [1, 30, 31, 32, 33, 34, 35, 36, 94, 95, 96, 97, 98, 99, 100])
def test_contexts_that_end_around_a_page_boundary(make_engine, words):
    """Each word is a token: prompt, program and reply cross a page at another place each time."""
    assembly = make_engine(runner="eager")

    heard = answers(assembly, [plain(words)])

    assert heard[0].tokens == right(assembly, plain(words))


def test_a_context_that_just_fits_and_one_that_does_not(make_engine):
    assembly = make_engine(runner="eager", config=replace(SMALL, context_tokens=128))
    fixed = ask(assembly, plain(60)).ticket.prompt_tokens
    room = 60 + (128 - 1) - fixed

    heard = answers(assembly, [plain(room)])

    assert heard[0].ending is Ending.LENGTH
    assert heard[0].tokens == right(assembly, plain(room))[:1]
    with pytest.raises(BadRequestError, match="tokens of 128") as refused:
        ask(assembly, plain(room + 1))
    assert refused.value.code == "context_length_exceeded"


class CountingTokenizer(Tokenizer):
    """Counts the texts that it cut."""

    def __init__(self):
        super().__init__(["water"])
        self.cut = 0

    def pieces(self, text, *, markup=False):
        self.cut += 1
        return super().pieces(text, markup=markup)


@pytest.mark.parametrize(("words", "most_cut"), [(400, 2), (2000, 1), (1_000_000, 0)])
def test_the_longer_a_context_that_does_not_fit_the_sooner_it_is_refused(
    make_engine, words, most_cut
):
    """The server's thread takes requests in: a body of 16 MiB kept it from all others for long."""
    assembly = make_engine(runner="eager", config=replace(SMALL, context_tokens=384))
    assembly.engine.tokenizer = tokenizer = CountingTokenizer()

    with pytest.raises(BadRequestError, match="tokens of 384") as refused:
        ask(assembly, plain(words))

    assert refused.value.code == "context_length_exceeded"
    assert tokenizer.cut <= most_cut


def test_eviction_and_growth_change_no_answer(make_engine):
    config = replace(SMALL, max_batch=8, cache_pages=12)
    assembly = make_engine(runner="ordered_streams", config=config)
    asked = [plain(words) for words in (100, 90, 110, 105, 99, 120, 60, 80)] * 2
    evicted = []
    scheduler = assembly.engine._scheduler
    evict = scheduler._evict
    scheduler._evict = lambda one: (evicted.append(one.number), evict(one))

    heard = answers(assembly, asked)

    assert evicted, "the pages were meant to run out"
    assert [one.tokens for one in heard] == [right(assembly, body) for body in asked]
    assert scheduler.free_pages == config.cache_pages - 1


def test_cancelled_requests_free_their_rows_and_change_no_other_answer(make_engine):
    assembly = make_engine(runner="ordered_streams")
    asked = bodies(20, seed=7)
    heard = [ask(assembly, body) for body in asked]

    for step in range(1000):
        if step < 20 and step % 3 == 0:
            assembly.engine.cancel(heard[step].ticket)
        if not assembly.engine.step():
            break

    for place, (body, one) in enumerate(zip(asked, heard, strict=True)):
        if place < 20 and place % 3 == 0 and one.ending is None:
            assert one.tokens == right(assembly, body)[: len(one.tokens)]
        else:
            assert one.tokens == right(assembly, body)
    loads = assembly.engine.loads()
    assert (loads.running, loads.waiting) == (0, 0)
    assert loads.free_pages == SMALL.cache_pages - 1


def test_cancelling_twice_or_after_the_end_does_nothing(make_engine):
    assembly = make_engine(runner="eager")
    heard = answers(assembly, [plain(3)])[0]

    assembly.engine.cancel(heard.ticket)
    assembly.engine.cancel(heard.ticket)

    assert not assembly.engine.step()
    assert heard.ending is Ending.STOP


def test_a_reply_that_loses_its_end_token_ends_at_the_next_step(make_engine):
    """The cursor is behind the program then, and what it finds there leads to the end again."""
    assembly = make_engine(runner="eager")
    step, end, lost = assembly.runner.step, assembly.engine.tokenizer.eos, []

    def losing_the_end(batch):
        tokens = step(batch)
        if tokens == [end] and not lost:
            lost.append(end)
            return [ord("x")]
        return tokens

    assembly.runner.step = losing_the_end
    heard = answers(assembly, [plain(40)])

    *rest, _ = right(assembly, plain(40))
    assert heard[0].tokens == [*rest, ord("x"), end]
    assert heard[0].ending is Ending.STOP


def test_each_layer_is_load_bearing(make_engine):
    """Hiding the right position from any one layer's top-k makes a wrong token."""
    body = plain(90)
    for broken in range(ModelConfig().layers):
        assembly = make_engine(runner="eager")
        index = assembly.engine._model._indexer
        select = index.select

        def blinded(device, call, broken=broken, select=select):
            slots = select(device, call)
            return slots.fill_(0) if call.layer == broken else slots

        index.select = blinded
        heard = answers(assembly, [body])

        wrong = sum(a != b for a, b in zip(heard[0].tokens, right(assembly, body), strict=False))
        assert wrong > 5, f"layer {broken}"


@pytest.mark.parametrize("keys", [True, False])
def test_the_flag_beats_the_variant_for_the_keys(make_engine, keys):
    flags = Flags(bf16_index_k=keys)
    formats = {
        cache: make_engine(runner="eager", cache=cache, flags=flags).cache.key_format.value
        for cache in ("bf16", "fp8", "guarded")
    }

    assert set(formats.values()) == {"bf16" if keys else "fp8"}


@pytest.mark.parametrize("shape", [{"splits": 64}, {"heads": 64}, {"depth": 5, "top_k": 16}])
def test_other_shapes_of_the_model_give_the_same_answers(make_engine, shape):
    config = replace(SMALL, model=replace(SMALL.model, **shape))
    assembly = make_engine(runner="ordered_streams", config=config)
    asked = bodies(5, seed=4)

    heard = answers(assembly, asked)

    assert [one.tokens for one in heard] == [right(assembly, body) for body in asked]


@pytest.mark.parametrize("shape", [{"width": 500}, {"heads": 7}, {"splits": 3}, {"depth": 1}])
def test_shapes_that_cannot_be_constructed_are_refused(make_engine, shape):
    with pytest.raises(ValueError, match="width is 4 x code_dim"):
        make_engine(config=replace(SMALL, model=replace(SMALL.model, **shape)))


def test_triton_without_a_gpu_is_refused(make_engine):
    with pytest.raises(ValueError, match="needs a GPU"):
        make_engine(flags=Flags(triton_indexer=True))


def test_the_largest_bucket_is_the_largest_batch():
    assert EngineConfig(max_batch=48).buckets == (1, 2, 4, 8, 16, 24, 32, 40, 48)
    assert EngineConfig(max_batch=5).buckets == (1, 2, 4, 5)
