"""Every logits function writes the true scores of the contexts, and nothing else."""

from dataclasses import replace

import pytest
import torch

from payload.cache import layout
from payload.cache.layout import PAGE_TOKENS, KeyFormat
from payload.indexer import kernel, reference, rows
from payload.indexer.kernel import LogitsTiling
from payload.indexer.kernel_case import random_case
from payload.numerics import assert_close, tolerance

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
pytestmark = [pytest.mark.gpu] if HAS_GPU else []
only_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")

FUNCTIONS = {"reference": reference.index_logits, "kernel": kernel.index_logits}
if not HAS_GPU:
    FUNCTIONS["rows"] = rows.index_logits  # written for the CPU
PAGE_EDGES = [0, 1, 63, 64, 65, 127, 128, 129]


@pytest.fixture(params=FUNCTIONS, ids=str)
def index_logits(request):
    return FUNCTIONS[request.param]


@pytest.fixture(params=KeyFormat, ids=lambda key_format: key_format.value)
def key_format(request):
    return request.param


def check(index_logits, case, out=None):
    """Run on a poisoned output; valid columns must be true, all others must keep the poison."""
    out = case.poisoned_out() if out is None else out

    returned = index_logits(
        case.q, case.weights, case.k_pages, case.page_table, case.lengths, out=out
    )

    valid = case.valid()
    assert returned is out
    assert out[~valid].isnan().all()
    assert_close(out[valid], case.truth()[valid], tolerance(case.q.dtype))


@pytest.mark.parametrize("batch", [1, 2, 32])
def test_scores_are_true_at_every_page_edge(index_logits, key_format, batch):
    lengths = [PAGE_EDGES[row % len(PAGE_EDGES)] for row in range(batch - 1)] + [200]

    check(index_logits, random_case(lengths, key_format, heads=16, dim=32, device=DEVICE))


@pytest.mark.parametrize("heads", [1, 8, 64])
def test_scores_are_true_at_the_shapes_of_models(index_logits, key_format, heads):
    """64 heads of 128 are production's, 8 the glass box's."""
    check(index_logits, random_case([300, 64], key_format, heads=heads, dim=128, device=DEVICE))


def test_columns_past_the_longest_context_stay_untouched(index_logits, key_format):
    case = random_case([5, 70], key_format, heads=16, dim=32, device=DEVICE, columns=1000)

    check(index_logits, case)


def test_an_output_may_be_a_slice_of_a_wider_buffer(index_logits, key_format):
    case = random_case([130, 64], key_format, heads=16, dim=32, device=DEVICE)
    wide = torch.full((2, 256), float("nan"), device=DEVICE)

    check(index_logits, case, out=wide[:, : case.columns])

    assert wide[:, case.columns :].isnan().all()


@pytest.mark.parametrize(("columns", "pages"), [(64, 4), (100, 4), (256, 1), (256, 2), (256, 0)])
def test_a_length_that_has_no_room_writes_to_no_other_row(index_logits, key_format, columns, pages):
    """A row of 256 columns and 4 pages; some have less room, and what lies beside is not theirs."""
    case = random_case([200, 256, 30], key_format, heads=16, dim=32, device=DEVICE)
    wide = torch.full((3, 300), float("nan"), device=DEVICE)

    index_logits(
        case.q,
        case.weights,
        case.k_pages,
        case.page_table[:, :pages],
        case.lengths,
        out=wide[:, :columns],
    )

    room = case.valid()
    room[:, min(columns, pages * PAGE_TOKENS) :] = False
    assert_close(wide[:, :256][room], case.truth()[room], tolerance(case.q.dtype))
    assert wide[:, :256][~room].isnan().all()
    assert wide[:, 256:].isnan().all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of the interpreter's numpy
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_a_key_that_is_no_number_gets_no_ordinary_score(index_logits, key_format, poison):
    """A head that took it for 0 would hide the poison, and the key could even be chosen."""
    case = random_case([70, 70], key_format, heads=16, dim=32, device=DEVICE)
    values, scales = layout.planes(case.k_pages)
    page = int(case.page_table[1, 0])
    if scales is None:
        values[page, 3, 5] = poison
    else:  # e4m3 has no infinity, and Triton's interpreter reads its NaN as 480
        scales[page, 3] = poison

    out = case.poisoned_out()
    index_logits(case.q, case.weights, case.k_pages, case.page_table, case.lengths, out=out)

    expected = case.valid()
    expected[1, 3] = False
    assert torch.equal(out.isfinite(), expected)


def test_a_batch_of_padded_rows_writes_nothing(index_logits, key_format):
    case = random_case([0, 0], key_format, heads=16, dim=32, device=DEVICE, columns=64)

    check(index_logits, case)


def test_the_same_inputs_give_the_same_bytes(index_logits, key_format):
    case = random_case([300, 129], key_format, heads=16, dim=32, device=DEVICE)
    inputs = (case.q, case.weights, case.k_pages, case.page_table, case.lengths)
    first, second = case.poisoned_out(), case.poisoned_out()

    index_logits(*inputs, out=first)
    index_logits(*inputs, out=second)

    assert torch.equal(first[case.valid()], second[case.valid()])


def test_fp8_pages_take_bf16_queries(index_logits):
    case = random_case([100, 65], KeyFormat.FP8, heads=16, dim=32, device=DEVICE)
    wide = torch.randn(case.q.shape, device=DEVICE).bfloat16()

    check(index_logits, replace(case, q=wide))


@pytest.mark.parametrize("block_tokens", [32, 64, 256])
@pytest.mark.parametrize("programs", [1, 1000])
def test_every_tiling_gives_the_true_scores(key_format, block_tokens, programs):
    tiling = LogitsTiling(block_tokens=block_tokens, stages=2, warps=4, programs=programs)

    def tiled(*inputs, out):
        return kernel.index_logits(*inputs, out=out, tiling=tiling)

    check(tiled, random_case([700, 65, 0], key_format, heads=16, dim=32, device=DEVICE))


def test_folding_the_query_scale_into_the_weights_changes_no_score():
    q = torch.randn(2, 16, 32)
    weights, keys = torch.randn(2, 16), torch.randn(2, 50, 32)
    quantised, folded = reference.quantise_queries(q, weights)
    scale = folded / weights

    before = reference.scores(
        quantised.double() * scale.unsqueeze(2).double(), weights, keys, dtype=torch.float64
    )

    after = reference.scores(quantised, folded, keys, dtype=torch.float64)
    assert_close(after, before, tolerance(torch.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(1, 24, 32)}, "heads must be a power of two and at least 1"),
        ({"q": torch.zeros(1, 16, 8)}, "dim must be a power of two and at least 16"),
        ({"q": torch.zeros(1, 16, 16).to(torch.float8_e4m3fn)}, "dim .* at least 32"),
        ({"q": torch.zeros(1, 16, 32, dtype=torch.bfloat16)}, "plain pages hold"),
        ({"weights": torch.zeros(1, 16, dtype=torch.bfloat16)}, "weights must be float32"),
        ({"weights": torch.zeros(1, 8)}, "weights for 16 heads"),
        ({"weights": torch.zeros(2, 16)}, "of the same rows"),
        ({"lengths": torch.zeros(2, dtype=torch.int32)}, "of the same rows"),
        ({"page_table": torch.zeros(2, 4, dtype=torch.int32)}, "of the same rows"),
        ({"out": torch.zeros(2, 256)}, "of the same rows"),
        ({"q": torch.zeros(1, 16, 64)}, "64 numbers, keys 32"),
        ({"q": torch.zeros(1, 16, 64)[:, :, ::2]}, "contiguous"),
        ({"page_table": torch.zeros(1, 4, dtype=torch.int32)[:, ::2]}, "contiguous"),
    ],
)
def test_the_kernel_says_which_input_it_was_not_written_for(change, message):
    case = random_case([64], KeyFormat.FP32, heads=16, dim=32, device="cpu")
    inputs = {name: value for name, value in vars(case).items() if name != "columns"}

    with pytest.raises(ValueError, match=message):
        kernel.index_logits(**{**inputs, "out": case.poisoned_out(), **change})


@only_gpu
@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_scores_are_true_over_131072_keys_at_batch_32(name):
    lengths = [131072] * 16 + [131071, 131009, 65536, 65537, 1, 0, 64, 2048] * 2
    case = random_case(lengths, KeyFormat(name), heads=64, dim=128, device=DEVICE)

    check(kernel.index_logits, case)


@only_gpu
@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_a_captured_call_follows_lengths_that_change_between_replays(name):
    case = random_case([500, 500], KeyFormat(name), heads=64, dim=128, device=DEVICE)
    out = case.poisoned_out()
    inputs = (case.q, case.weights, case.k_pages, case.page_table, case.lengths)
    kernel.index_logits(*inputs, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.index_logits(*inputs, out=out)

    for lengths in ([500, 3], [0, 499]):
        case.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()

        valid = case.valid()
        assert out[~valid].isnan().all()
        assert_close(out[valid], case.truth()[valid], tolerance(case.q.dtype))
