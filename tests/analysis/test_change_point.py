"""Finding the first bad patch with noisy runs."""

import numpy as np
import pytest

from fleetctl.analysis.change_point import (
    Rates,
    information_per_run,
    minimise_budget,
    uniform,
)
from fleetctl.errors import InputError


def search(rng, rates, patches=32):
    culprit = int(rng.integers(patches))
    state, runs = uniform(patches, rates), 0
    while state.culprit() is None and runs < 80:
        tested = state.next_test()
        p = rates.p_bad if tested >= culprit else rates.p_good
        scale = 1 / rates.rho - 1
        bad = int(rng.binomial(40, rng.beta(p * scale, (1 - p) * scale)))
        state, runs = state.after(tested, bad, 40), runs + 1
    return state.culprit() == culprit, runs


def test_searches_with_correlated_runs_find_the_culprit_in_few_runs():
    rng = np.random.default_rng(20261129)

    found = [search(rng, Rates(0.03, 0.15, rho=0.05)) for _ in range(500)]

    assert np.mean([is_right for is_right, _ in found]) >= 0.95
    assert np.mean([runs for _, runs in found]) <= 16


def test_a_clean_build_clears_the_patches_in_it():
    state = uniform(8, Rates(0.01, 0.15)).after(3, 0, 40)

    assert sum(state.mass[:4]) < 0.01
    assert sum(state.mass) == pytest.approx(1.0)
    assert state.next_test() == 5


def test_an_undecided_search_names_nobody():
    assert uniform(8, Rates(0.01, 0.15)).culprit() is None
    assert uniform(1, Rates(0.01, 0.15)).culprit() == 0
    assert uniform(1, Rates(0.01, 0.15)).next_test() == 0


def test_an_impossible_outcome_is_refused_rather_than_believed():
    with pytest.raises(InputError, match="can't happen"):
        uniform(4, Rates(0.0, 0.0)).after(1, 3, 40)


def test_a_patch_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="patch 4"):
        uniform(4, Rates(0.01, 0.15)).after(4, 0, 40)


def test_a_fault_that_good_builds_never_show_is_decided_by_one_bad_session():
    state = uniform(2, Rates(0.0, 0.15)).after(0, 1, 40)

    assert state.culprit() == 0


def test_equal_rates_carry_no_information():
    told = information_per_run(Rates(0.1, 0.1), 40)

    assert told.bits == pytest.approx(0.0, abs=1e-12)
    assert told.min_runs(32) is None
    assert information_per_run(Rates(0.0, 0.15, rho=0.05), 40).bits < 1.0


def test_each_test_of_a_minimisation_may_err_only_a_little():
    budget = minimise_budget(Rates(0.01, 0.15), tests=60, delta=0.05)

    assert budget.error_per_test < 0.001
    assert budget.clean_to_accept == 47
