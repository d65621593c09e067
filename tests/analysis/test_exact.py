"""Enumerated operating characteristics."""

import numpy as np
import pytest
from scipy import stats

from fleetctl.analysis import exact, rates


def test_the_table_of_fisher_agrees_with_scipy_everywhere():
    table = exact.fisher_table(9, 7)

    for xb in range(10):
        for xc in range(8):
            told = stats.fisher_exact([[xb, xc], [9 - xb, 7 - xc]]).pvalue
            assert table[xb, xc] == pytest.approx(told, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.05, 0.9, 1.0])
@pytest.mark.parametrize("p", [0.0, 0.15, 1.0])
def test_the_total_of_runs_is_a_distribution_with_the_right_mean_and_spread(p, rho):
    pmf = exact.total_pmf(p, rho, 3, 40)

    totals = np.arange(121)
    mean = pmf @ totals
    assert pmf.sum() == pytest.approx(1.0)
    assert mean == pytest.approx(120 * p, abs=1e-9)
    spread = pmf @ (totals - mean) ** 2
    assert spread == pytest.approx(120 * p * (1 - p) * (1 + 39 * rho), abs=1e-6)


def test_looking_once_is_the_fixed_test():
    assert exact.fisher_peeking(0.15, 40, 1)[0] == pytest.approx(exact.fisher_power(40, 0.15, 0.15))
    assert exact.fisher_peeking(0.15, 40, 1, rho=0.05)[0] == pytest.approx(
        exact.fisher_type1(0.15, 0.05, 1, 40)
    )


def test_declared_looks_hold_the_level_where_naive_ones_do_not():
    assert exact.obf_peeking(0.15, 80, 4)[-1] < 0.05 < exact.z_peeking(0.15, 80, 4)[-1]


def test_an_exact_interval_covers_at_least_what_it_promises():
    assert exact.coverage(rates.clopper_pearson, 0.15, 0.0, 3, 40) >= 0.95


def test_the_session_evalue_is_safe_for_independent_sessions():
    stopped = exact.evalue_crossing(0.15, 0.15, 20, 4, 20.0, [[0.15, 0.05], [0.05, 0.15]])

    assert stopped[-1] <= 0.05
