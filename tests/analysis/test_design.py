"""What is declared first, and the order of runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.analysis.design import (
    Design,
    Order,
    check_order,
    is_blocked,
    letters_of,
    schedule,
)
from fleetctl.analysis.permutation import linear_drift_bias
from fleetctl.errors import InputError

ORDERS = st.sampled_from([Order.INTERLEAVED, Order.RANDOMISED])


@given(runs=st.integers(1, 40), order=ORDERS, seed=st.integers(0, 2**40))
def test_each_arm_gets_its_runs_and_the_control_goes_first_and_last(runs, order, seed):
    letters = letters_of(schedule(runs, order, seed, host="gpu-1"))

    assert letters.count("A") == letters.count("B") == runs
    assert letters[0] == "A"
    assert runs == 1 or letters[-1] == "A"
    assert not is_blocked(letters)


@given(runs=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_a_linear_drift_hardly_fakes_an_effect_when_the_arms_take_turns(runs, seed):
    letters = letters_of(schedule(runs, Order.INTERLEAVED, seed))

    assert abs(linear_drift_bias(letters)) <= 1 / runs + 1e-9


@given(runs=st.integers(1, 20), order=ORDERS, seed=st.integers(0, 999))
def test_the_seed_and_the_host_decide_the_order(runs, order, seed):
    assert schedule(runs, order, seed, host="a") == schedule(runs, order, seed, host="a")


def test_another_seed_or_host_gives_another_order():
    orders = {letters_of(schedule(20, Order.RANDOMISED, s, host=h)) for s in (1, 2) for h in "ab"}

    assert len(orders) == 4


def test_the_recorded_order_never_changes_between_versions():
    assert letters_of(schedule(6, Order.INTERLEAVED, 7)) == "ABBAABBAABBA"
    assert letters_of(schedule(5, Order.RANDOMISED, 7, host="gpu-1")) == "ABBABAABBA"


@given(runs=st.integers(2, 20), seed=st.integers(0, 999))
def test_every_drawn_run_names_its_block_and_the_bracket_belongs_to_none(runs, seed):
    slots = schedule(runs, Order.RANDOMISED, seed)

    assert slots[0].block is None
    assert slots[-1].block is None
    drawn = [slot.block for slot in slots if slot.block is not None]
    assert len(drawn) == 2 * runs - 2
    assert all(drawn.count(block) == block.runs for block in drawn)


def test_all_of_one_arm_first_is_refused_unless_forced():
    with pytest.raises(InputError, match="AAABBB"):
        schedule(3, Order.BLOCKS, 1)

    assert letters_of(schedule(3, Order.BLOCKS, 1, forced=True)) == "AAABBB"


@pytest.mark.parametrize(
    ("letters", "blocked"),
    [("AAABBB", True), ("BBA", True), ("ABBA", False), ("AB", False), ("AAA", False), ("", False)],
)
def test_a_blocked_order_is_recognised(letters, blocked):
    assert is_blocked(letters) is blocked
    if not blocked:
        check_order(letters)


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": 0.0},
        {"alpha": 1.0},
        {"margin": 0.0},
        {"runs": 0},
        {"looks": (6, 4)},
        {"looks": (0, 4)},
        {"looks": (4, 9), "runs": 8},
    ],
)
def test_a_design_that_means_nothing_is_refused(wrong):
    with pytest.raises(InputError):
        Design(**wrong)


def test_the_planned_end_is_always_a_look():
    assert Design(runs=8, looks=(4, 6)).declared_looks == (4, 6, 8)
    assert Design(looks=(4, 6)).declared_looks == (4, 6)
    assert Design().declared_looks == ()
