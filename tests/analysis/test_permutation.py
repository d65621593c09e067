"""Exact tests over orders and arrangements."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fleetctl.analysis.permutation import (
    drift_test,
    drift_test_stratified,
    linear_drift_bias,
    min_p_paired_blocks,
    run_permutation_test,
)

FEW = st.lists(st.integers(0, 4), min_size=2, max_size=6)


def score(counts):
    return sum((b > a) - (b < a) for a, b in itertools.combinations(counts, 2))


@settings(deadline=None, max_examples=50)
@given(counts=FEW)
def test_drift_is_the_share_of_orders_at_least_as_sorted(counts):
    scores = [score(order) for order in itertools.permutations(counts)]

    found = drift_test(counts)

    extreme = sum(abs(value) >= abs(score(counts)) for value in scores) / len(scores)
    assert found.p == pytest.approx(extreme)


@given(counts=FEW)
def test_drift_reports_kendalls_tau(counts):
    if len(set(counts)) > 1:
        told = stats.kendalltau(range(len(counts)), counts)
        assert drift_test(counts).tau == pytest.approx(told.statistic)


def test_equal_counts_have_no_trend_and_one_count_no_order():
    assert drift_test([3, 3, 3]) == (None, 1.0)
    assert drift_test([3]) is None


@settings(deadline=None, max_examples=30)
@given(a=st.lists(st.integers(0, 3), min_size=2, max_size=4), b=FEW)
def test_trends_of_several_series_are_added_before_they_are_compared(a, b):
    pairs = itertools.product(itertools.permutations(a), itertools.permutations(b))
    sums = [score(x) + score(y) for x, y in pairs]

    found = drift_test_stratified([a, b, [1]])

    seen = score(a) + score(b)
    assert found.p == pytest.approx(sum(abs(s) >= abs(seen) for s in sums) / len(sums))


@given(
    control=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    treatment=st.lists(st.integers(0, 9), min_size=1, max_size=4),
)
def test_the_permutation_test_is_fair_to_both_arms_and_bounded_below(control, treatment):
    found = run_permutation_test(control, treatment)

    assert found.p == pytest.approx(run_permutation_test(treatment, control).p)
    assert found.min_p <= found.p <= 1


def test_an_empty_arm_can_not_be_permuted():
    assert run_permutation_test([], [1]) is None
    assert run_permutation_test([1], []) is None


def test_five_pairs_can_never_be_significant():
    assert min_p_paired_blocks(5) > 0.05 > min_p_paired_blocks(6)
    assert min_p_paired_blocks(0) == 1.0


def test_an_order_without_the_other_arm_has_no_bias():
    assert linear_drift_bias("AAA") is None
    assert linear_drift_bias("ABBABAAB") == 0.0
