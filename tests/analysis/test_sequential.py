"""Looks and e-values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleetctl.analysis.sequential import (
    Block,
    evalue_permuted_blocks,
    evalue_two_arm,
    obf_looks,
    sprt_design,
)

RUNS = st.lists(st.integers(0, 12), min_size=1, max_size=3)


def test_the_bounds_of_five_looks_are_the_published_ones():
    bounds = [look.z for look in obf_looks([0.2, 0.4, 0.6, 0.8, 1.0])]

    assert bounds == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-4)


def test_the_looks_together_spend_the_level_and_no_more():
    looks = obf_looks([0.5, 0.75, 1.0])
    times = np.array([look.fraction for look in looks])
    covariance = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    z = np.array([look.z for look in looks])
    inside = stats.multivariate_normal(cov=covariance, allow_singular=True).cdf(
        z, lower_limit=-z, rng=np.random.default_rng(1)
    )

    assert 1 - inside == pytest.approx(0.05, abs=2e-4)


def test_one_look_is_an_ordinary_test():
    (look,) = obf_looks([1.0])

    assert (look.z, look.nominal_p) == pytest.approx((1.959964, 0.05), abs=1e-6)


def test_a_look_at_almost_nothing_can_not_stop_the_trial():
    first, last = obf_looks([0.001, 1.0])

    assert first.nominal_p < 1e-200
    assert last.nominal_p == pytest.approx(0.05, abs=1e-6)


@given(blocks=st.lists(st.tuples(RUNS, RUNS), min_size=1, max_size=3))
def test_the_block_evalue_is_one_on_average_over_the_labellings(blocks):
    import itertools

    control, treatment = blocks[0]
    runs = [*control, *treatment]
    values = []
    for chosen in itertools.combinations(range(len(runs)), len(control)):
        rest = [runs[i] for i in range(len(runs)) if i not in chosen]
        block = Block(tuple(runs[i] for i in chosen), tuple(rest))
        values.append(evalue_permuted_blocks([block]))

    assert sum(values) / len(values) == pytest.approx(1.0)


@given(control=RUNS, treatment=RUNS)
def test_the_two_sided_block_evalue_is_fair_to_both_arms(control, treatment):
    there = evalue_permuted_blocks([Block(tuple(control), tuple(treatment))])
    back = evalue_permuted_blocks([Block(tuple(treatment), tuple(control))])

    assert there == pytest.approx(back)


def test_two_blocks_can_not_stop_a_trial_and_three_can():
    block = Block((12, 12), (0, 0))

    assert evalue_permuted_blocks([block] * 2) < 20 < evalue_permuted_blocks([block] * 3)


def test_a_one_sided_evalue_ignores_a_worse_treatment():
    worse = Block((0, 0), (9, 9))

    assert evalue_permuted_blocks([worse], two_sided=False) < 1 < evalue_permuted_blocks([worse])


def test_an_impossible_alternative_is_worth_nothing():
    assert evalue_two_arm([5], [1], 40, [0.15, 0.0]) == (0.0,)


def test_a_fault_that_a_good_build_never_shows_is_bad_at_once():
    design = sprt_design(0.0, 0.15, 0.05, 0.05)

    assert design.llr_bad is None
    assert design.asn_bad is None
    assert design.clean_to_accept_good == 19


def test_a_fault_that_a_bad_build_always_shows_is_excluded_by_one_clean_session():
    design = sprt_design(0.01, 1.0, 0.05, 0.05)

    assert (design.llr_clean, design.clean_to_accept_good, design.asn_good) == (None, 1, 1.0)
    assert design.asn_bad == pytest.approx((0.95 - 0.05) * design.upper / design.llr_bad)
