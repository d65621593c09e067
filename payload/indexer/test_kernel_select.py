"""Top-k chooses the one right set of columns, whatever lies in the memory around it."""

import heapq
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payload.indexer import reference, select_bisect
from payload.indexer.select_cut import Cut, Workspace

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
pytestmark = [pytest.mark.gpu] if HAS_GPU else []
only_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")

FUNCTIONS = {"reference": reference.select_topk, "bisect": select_bisect.select_topk}
NAN, INF = float("nan"), float("inf")


@pytest.fixture(params=FUNCTIONS, ids=str)
def select_topk(request):
    return FUNCTIONS[request.param]


def ints(*values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def right_set(scores, length, k):
    """Sort one row in plain Python: larger first, NaN as -inf, then the smaller column."""
    numbers = [-INF if math.isnan(score) else score for score in scores]
    return set(heapq.nsmallest(k, range(length), key=lambda column: (-numbers[column], column)))


def check(select_topk, logits, lengths, k, **options):
    """Compare each row with Python's sort; rows may hold anything past their length."""
    chosen = select_topk(logits, lengths, k, **options)

    assert chosen.shape == (logits.shape[0], k)
    assert chosen.dtype is torch.int32
    for row, length in enumerate(lengths.tolist()):
        columns = [column for column in chosen[row].tolist() if column != reference.EMPTY]
        assert len(columns) == min(k, length)
        assert set(columns) == right_set(logits[row].tolist(), length, k)
    return chosen


@pytest.mark.parametrize("columns", [1, 7, 512, 8192, 8193, 20000])
@pytest.mark.parametrize("k", [1, 8, 512, 1024, 2048])
def test_the_k_largest_are_chosen(select_topk, columns, k):
    logits = torch.randn(5, columns, device=DEVICE)
    lengths = ints(columns, 0, 1, min(k + 1, columns), columns // 2)

    check(select_topk, logits, lengths, k)


@pytest.mark.parametrize("batch", [1, 2, 32])
def test_each_row_is_chosen_from_alone(select_topk, batch):
    logits = torch.randn(batch, 9000, device=DEVICE)
    lengths = ints(*(9000 - 250 * row for row in range(batch)))

    check(select_topk, logits, lengths, 64)


@pytest.mark.parametrize("columns", [600, 9000])
@pytest.mark.parametrize("garbage", [NAN, INF, -INF, 1e30])
def test_columns_past_the_length_are_never_chosen(select_topk, columns, garbage):
    logits = torch.full((3, columns), garbage, device=DEVICE)
    logits[1, :300] = torch.randn(300, device=DEVICE)
    logits[2, :1] = -5.0

    check(select_topk, logits, ints(0, 300, 1), 128)


@pytest.mark.parametrize("columns", [600, 9000])
def test_among_equal_scores_the_smaller_columns_win(select_topk, columns):
    few_values = torch.randint(0, 3, (2, columns), device=DEVICE).float()
    all_equal = torch.zeros(1, columns, device=DEVICE)
    signed_zeros = all_equal * torch.where(few_values[:1] > 1, -1.0, 1.0)

    check(
        select_topk,
        torch.cat([few_values, all_equal, signed_zeros]),
        ints(columns, columns - 100, columns, columns),
        512,
    )


@pytest.mark.parametrize("columns", [600, 9000])
def test_nan_counts_as_minus_infinity(select_topk, columns):
    logits = torch.full((2, columns), NAN, device=DEVICE)
    logits[0, 10:40] = -INF
    logits[0, 300] = -3e38
    logits[1, :] = torch.randn(columns, device=DEVICE)
    logits[1, ::7] = -NAN
    logits[1, 5] = INF

    check(select_topk, logits, ints(columns, columns), 128)


@pytest.mark.parametrize("columns", [600, 9000])
def test_a_length_out_of_range_means_none_or_all(select_topk, columns):
    logits = torch.randn(4, columns, device=DEVICE)

    chosen = select_topk(logits, ints(columns + 1, 2**31 - 1, -1, -(2**31)), 64)

    whole = select_topk(logits, ints(columns, columns, 0, 0), 64)
    assert torch.equal(chosen.sort(1).values, whole.sort(1).values)


def test_more_may_be_asked_for_than_a_row_has_columns(select_topk):
    check(select_topk, torch.randn(2, 100, device=DEVICE), ints(100, 50), 5000)


def test_the_answer_goes_where_the_caller_wants_it(select_topk):
    out = torch.full((2, 40), 12345, dtype=torch.int32, device=DEVICE)
    logits = torch.randn(2, 9000, device=DEVICE)

    chosen = check(select_topk, logits, ints(9000, 20), 32, out=out[:, :32])

    assert chosen.data_ptr() == out.data_ptr()
    assert (out[:, 32:] == 12345).all()


def test_logits_may_be_a_slice_of_a_wider_buffer(select_topk):
    wide = torch.full((3, 9216), INF, device=DEVICE)
    wide[:, :9001] = torch.randn(3, 9001, device=DEVICE)

    check(select_topk, wide[:, :9001], ints(9001, 9000, 8999), 100)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_floats_are_ordered_as_python_orders_them(data):
    columns = data.draw(st.sampled_from([1, 6, 40]))
    floats = st.floats(width=32)
    row = data.draw(st.lists(floats, min_size=columns, max_size=columns))
    length, k = data.draw(st.integers(0, columns)), data.draw(st.integers(1, 50))
    logits = torch.tensor([row], device=DEVICE)

    for function in FUNCTIONS.values():
        check(function, logits, ints(length), k)


def test_bisection_lists_columns_in_order_so_that_equal_inputs_give_equal_bytes():
    logits = torch.randn(2, 9000, device=DEVICE)

    chosen = select_bisect.select_topk(logits, ints(9000, 30), 64)

    assert torch.equal(chosen[0], chosen[0].sort().values)
    assert chosen[1].tolist() == [*range(30), *[reference.EMPTY] * 34]


@pytest.mark.parametrize("k", [64, 4096])
def test_the_best_columns_may_lie_side_by_side_or_one_to_a_block(k):
    columns = 40000
    cut = Cut.of(columns, k)
    score = torch.arange(columns, device=DEVICE).float()
    one_to_a_block = torch.where(score % cut.fan == 3, score, -score)

    check(
        select_bisect.select_topk,
        torch.stack([score, -score, one_to_a_block]),
        ints(columns, columns, columns - 1),
        k,
    )


def test_rows_too_long_for_one_level_of_maxima_take_more():
    columns, k = 300_000, 16
    logits = torch.randn(2, columns, device=DEVICE)

    assert Cut.of(columns, k).levels == 3
    check(select_bisect.select_topk, logits, ints(columns, 140_000), k)


def test_a_k_whose_blocks_do_not_fit_on_chip_is_refused():
    with pytest.raises(ValueError, match="at most 4096 for rows of 20000"):
        Cut.of(20000, 5000)


@pytest.mark.parametrize("k", [512, 2048])
def test_candidates_are_listed_up_to_32_rows_and_more_go_down_the_levels(k):
    assert Cut.of(131072, k, 32).segments > 0
    assert Cut.of(131072, k, 33).segments == 0


def test_more_rows_than_are_listed_get_the_same_answer():
    logits = torch.randn(33, 65536, device=DEVICE)

    check(select_bisect.select_topk, logits, ints(*[65536] * 32, 5), 64)


@pytest.mark.parametrize(
    "made_for",
    [(1, 9000, 64), (3, 9000, 64), (2, 8000, 64), (2, 9000, 1500), (2, 9000 * 16, 64)],
)
def test_a_workspace_of_other_rows_is_refused_before_anything_is_written(made_for):
    batch, columns, k = made_for
    workspace = Workspace.allocate(batch, columns, k, device=DEVICE)
    logits, lengths = torch.randn(2, 9000, device=DEVICE), ints(9000, 70)
    out = torch.full((2, 64), 7, dtype=torch.int32, device=DEVICE)

    with pytest.raises(ValueError, match="allocated for other rows than 2 of 9000 with k = 64"):
        select_bisect.select_topk(logits, lengths, 64, out=out, workspace=workspace)

    assert (out == 7).all()


@pytest.mark.parametrize(
    ("lengths", "out"),
    [
        (ints(9000), torch.empty(2, 64, dtype=torch.int32)),
        (ints(9000, 1, 2), torch.empty(2, 64, dtype=torch.int32)),
        (ints(9000, 70), torch.empty(1, 64, dtype=torch.int32)),
        (ints(9000, 70), torch.empty(2, 63, dtype=torch.int32)),
        (ints(9000, 70), torch.empty(2, 64, dtype=torch.int64)),
        (ints(9000, 70), torch.empty(64, 2, dtype=torch.int32).T),
    ],
)
def test_lengths_or_a_place_for_the_chosen_of_other_rows_are_refused(lengths, out):
    logits = torch.randn(2, 9000, device=DEVICE)

    with pytest.raises(ValueError, match=r"lengths for 2 rows|out must be"):
        select_bisect.select_topk(logits, lengths, 64, out=out.to(DEVICE))


def test_a_workspace_can_be_used_again_and_holds_no_secret_state():
    workspace = Workspace.allocate(2, 9000, 64, device=DEVICE)
    workspace.maxima.fill_(INF)

    for _ in range(3):
        logits = torch.randn(2, 9000, device=DEVICE)
        check(select_bisect.select_topk, logits, ints(9000, 70), 64, workspace=workspace)

    assert workspace.nbytes == workspace.maxima.nbytes + workspace.candidates.nbytes


@pytest.mark.parametrize("garbage", [0x00, 0x7F, 0xFF, None])
def test_maxima_overwritten_midway_give_columns_of_the_row_and_no_fault(garbage):
    columns, k = 300_000, 64
    cut = Cut.of(columns, k)
    logits, lengths = torch.randn(4, columns, device=DEVICE), ints(columns, 1, 0, 3000)
    workspace = Workspace.allocate(4, columns, k, device=DEVICE)
    as_bytes = workspace.maxima.view(torch.uint8)
    as_bytes.random_(0, 256) if garbage is None else as_bytes.fill_(garbage)
    out = torch.full((4, k), -7, dtype=torch.int32, device=DEVICE)

    select_bisect.pick(logits, lengths, cut, workspace, out)

    assert (out >= reference.EMPTY).all()
    assert (out < lengths.unsqueeze(1)).all()


def hostile_rows(columns):
    """Return rows of scores that are hard on lists of candidates, by name."""
    column = torch.arange(columns, device=DEVICE)
    spread = torch.randn(columns, device=DEVICE)
    heap = torch.where((column > 3000) & (column < 12000), spread + 20.0, spread)
    return {
        "spread": spread,
        "rounded": (spread * 50).round(),
        "part NaN": torch.where(column % 3 == 0, NAN, spread),
        "almost all -inf": torch.where(column % 977 == 5, spread, -INF),
        "one heap": heap,
        "equal": torch.zeros_like(spread),
        "rising": column.float(),
        "falling": -column.float(),
    }


def is_whole(cut, workspace):
    """Return for each row whether its candidates fitted where they are listed."""
    start = 2 * cut.segments * cut.share
    counts = workspace.candidates[:, start : start + cut.segments]
    return ((counts <= cut.share).all(1) & (counts.sum(1) <= cut.room)).tolist()


def test_candidates_are_listed_or_the_levels_are_gone_down_and_both_are_right():
    columns, k = 65536 + 4 * 77, 64
    cut, rows = Cut.of(columns, k), hostile_rows(columns)
    workspace = Workspace.allocate(len(rows), columns, k, device=DEVICE)
    workspace.maxima.fill_(NAN)
    workspace.candidates.fill_(-1)
    logits, lengths = torch.stack([*rows.values()]), [columns] * len(rows)
    lengths[:2] = [columns - 3, 40_001]

    check(select_bisect.select_topk, logits, ints(*lengths), k, workspace=workspace)

    whole = dict(zip(rows, is_whole(cut, workspace), strict=True))
    assert whole["spread"]
    assert whole["rounded"]
    assert not whole["equal"]
    assert whole["one heap"]
    assert not whole["rising"]


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 4097, 65535])
def test_a_short_row_in_a_long_buffer_is_chosen_from_alone(length):
    logits = torch.full((1, 65536), INF, device=DEVICE)
    logits[:, :length] = torch.randn(length, device=DEVICE)

    check(select_bisect.select_topk, logits, ints(length), 64)


@pytest.mark.parametrize("part", ["maxima", "candidates"])
@pytest.mark.parametrize("garbage", [0x00, 0x7F, 0xFF, None])
def test_lists_overwritten_midway_give_columns_of_the_row_and_no_fault(part, garbage):
    columns, k = 65536, 64
    cut = Cut.of(columns, k)
    logits, lengths = torch.randn(3, columns, device=DEVICE), ints(columns, 1, 9000)
    workspace = Workspace.allocate(3, columns, k, device=DEVICE)
    out = torch.full((3, k), -7, dtype=torch.int32, device=DEVICE)

    for launch in (select_bisect.take_maxima, select_bisect.list_candidates):
        launch(logits, lengths, cut, workspace)
        as_bytes = getattr(workspace, part).view(torch.uint8)
        as_bytes.random_(0, 256) if garbage is None else as_bytes.fill_(garbage)
    select_bisect.pick(logits, lengths, cut, workspace, out)

    assert (out >= reference.EMPTY).all()
    assert (out < lengths.unsqueeze(1)).all()


def test_a_list_with_forged_counts_and_columns_gives_no_column_outside_the_row():
    columns, k = 65536, 64
    cut = Cut.of(columns, k)
    logits, lengths = torch.randn(1, columns, device=DEVICE), ints(500)
    workspace = Workspace.allocate(1, columns, k, device=DEVICE)
    workspace.candidates.copy_(torch.arange(cut.words) * 7 - 900)
    start = 2 * cut.segments * cut.share
    workspace.candidates[:, start : start + cut.segments] = cut.room // cut.segments
    out = torch.full((1, k), -7, dtype=torch.int32, device=DEVICE)

    select_bisect.pick(logits, lengths, cut, workspace, out)

    assert (out >= reference.EMPTY).all()
    assert (out < 500).all()
    assert is_whole(cut, workspace) == [True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(1, 4, dtype=torch.float64)}, "float32"),
        ({"logits": torch.zeros(1, 8)[:, ::2]}, "contiguous"),
        ({"lengths": torch.ones(1, dtype=torch.int64)}, "int32"),
        ({"k": 0}, "at least 1"),
    ],
)
def test_the_kernel_says_which_input_it_was_not_written_for(change, message):
    call = {"logits": torch.zeros(1, 4), "lengths": torch.ones(1, dtype=torch.int32), "k": 2}

    with pytest.raises(ValueError, match=message):
        select_bisect.select_topk(**{**call, **change})


@only_gpu
@pytest.mark.parametrize("k", [512, 2048])
def test_the_k_largest_of_131072_are_chosen_at_batch_32(k):
    logits = torch.randn(32, 131072, device=DEVICE)
    lengths = ints(*(131072 - 4000 * row for row in range(32)))

    chosen = select_bisect.select_topk(logits, lengths, k)

    expected = reference.select_topk(logits, lengths, k)
    assert torch.equal(chosen.sort(1).values, expected.sort(1).values)


@only_gpu
def test_a_captured_call_follows_scores_and_lengths_that_change_between_replays():
    logits, lengths = torch.zeros(4, 70000, device=DEVICE), ints(1, 1, 1, 1)
    select_bisect.select_topk(logits, lengths, 512)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chosen = select_bisect.select_topk(logits, lengths, 512)

    for length in (70000, 511):
        logits.normal_()
        lengths.fill_(length)
        graph.replay()

        expected = reference.select_topk(logits, lengths, 512)
        assert torch.equal(chosen.sort(1).values, expected.sort(1).values)
