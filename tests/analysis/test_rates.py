"""Rates, bounds and the sessions that a claim needs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleetctl.analysis import rates
from fleetctl.analysis.counts import Interval
from fleetctl.errors import InputError

COUNTS = st.integers(0, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
METHODS = [rates.wilson, rates.clopper_pearson, rates.jeffreys]


@pytest.mark.parametrize("method", METHODS)
@given(counts=COUNTS, conf=st.sampled_from([0.9, 0.95, 0.99]))
def test_every_interval_is_a_range_of_rates_that_holds_the_estimate(method, counts, conf):
    x, n = counts

    low, high = method(x, n, conf)

    assert 0 <= low <= high <= 1
    assert not n or low <= x / n + 1e-12
    assert not n or high >= x / n - 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_nothing_counted_says_nothing(method):
    assert method(0, 0) == (0.0, 1.0)


@given(counts=COUNTS)
def test_wilson_and_clopper_pearson_agree_with_scipy(counts):
    x, n = counts
    if n:
        for name, method in (("wilson", rates.wilson), ("exact", rates.clopper_pearson)):
            told = stats.binomtest(x, n).proportion_ci(0.95, method=name)
            assert method(x, n) == pytest.approx((told.low, told.high), abs=1e-9)


@given(counts=COUNTS)
def test_an_anytime_interval_is_wider_than_the_fixed_one_and_never_fails(counts):
    x, n = counts

    low, high = rates.confidence_sequence(x, n)

    fixed = rates.jeffreys(x, n)
    assert 0 <= low <= fixed.low + 1e-9
    assert 1 >= high >= fixed.high - 1e-9


def test_one_clean_session_less_than_needed_does_not_exclude_the_rate():
    n = rates.clean_sessions_needed(0.01)

    assert rates.upper_bound(0, n) <= 0.01 < rates.upper_bound(0, n - 1)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1])
def test_no_number_of_sessions_excludes_a_rate_of_zero(p):
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        rates.clean_sessions_needed(p)
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        rates.clean_runs_needed(p, 0.05, 40)


def test_correlated_runs_need_more_clean_ones_up_to_one_vote_per_run():
    needed = [rates.clean_runs_needed(0.01, rho, 40).runs for rho in (0, 0.02, 0.05, 0.5, 1.0)]

    assert needed == sorted(needed)
    assert needed[0] == math.ceil(299 / 40)
    assert needed[-1] == 299


def test_the_bound_after_clean_runs_is_where_they_become_a_surprise():
    assert rates.zero_event_upper([40] * 3, 0.0) == pytest.approx(rates.upper_bound(0, 120))
    assert rates.zero_event_upper([40] * 14, 0.05) <= 0.01 < rates.zero_event_upper([40] * 13, 0.05)
    assert rates.zero_event_upper([], 0.05) == 1.0


def test_a_clean_run_is_certain_without_a_fault_and_impossible_with_a_sure_one():
    assert rates.log_p_zero(0.0, 0.05, 40) == 0.0
    assert rates.log_p_zero(1.0, 0.05, 40) == -math.inf


@pytest.mark.parametrize(("p", "n", "expected"), [(1.0, 1, 1.0), (1.0, 0, 0.0), (0.0, 40, 0.0)])
def test_the_chance_to_see_a_fault_at_all(p, n, expected):
    assert rates.prob_at_least_one(p, n) == expected


def test_bounds_are_vacuous_where_the_counts_end():
    assert rates.upper_bound(40, 40) == 1.0
    assert rates.lower_bound(0, 40) == 0.0
    assert Interval(0.0, 1.0) == rates.UNKNOWN
