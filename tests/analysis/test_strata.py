"""Two arms inside strata."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable

from fleetctl.analysis.strata import Cmh, TwoByTwo, cmh, exact_conditional_p

CELL = st.integers(0, 12)
TABLE = st.builds(TwoByTwo, CELL, CELL, CELL, CELL)


@given(tables=st.lists(TABLE, max_size=4))
def test_no_table_makes_it_fail_or_answer_nonsense(tables):
    told = cmh(tables)
    exact = exact_conditional_p(tables)

    for value in (told.p, told.breslow_day_p, exact):
        assert value is None or 0 <= value <= 1
    assert (exact is None) == (not any(table.is_informative for table in tables))


def test_strata_without_information_tell_nothing():
    useless = [TwoByTwo(0, 40, 0, 40), TwoByTwo(0, 0, 3, 4), TwoByTwo(5, 0, 5, 0)]

    assert cmh(useless) == Cmh(None, None, None, None)
    assert exact_conditional_p(useless) is None


def test_one_stratum_has_no_homogeneity_and_its_exact_p_doubles_the_smaller_tail():
    table = TwoByTwo(6, 34, 1, 39)

    assert cmh([table]).breslow_day_p is None
    tail = stats.hypergeom.cdf(1, 80, 7, 40)
    assert exact_conditional_p([table]) == pytest.approx(2 * tail)


def test_an_infinite_odds_ratio_is_unknown():
    assert cmh([TwoByTwo(6, 34, 0, 40)]).common_or is None


def test_homogeneity_is_known_even_when_the_pooled_odds_ratio_is_exactly_one():
    opposite = cmh([TwoByTwo(60, 60, 6, 114), TwoByTwo(6, 114, 60, 60)])
    alike = cmh([TwoByTwo(6, 34, 6, 34), TwoByTwo(2, 38, 2, 38)])

    assert (opposite.common_or, alike.common_or) == (1.0, 1.0)
    assert opposite.breslow_day_p < 1e-9
    assert alike.breslow_day_p == 1.0


def homogeneity_at_one(tables):
    """The p of Breslow and Day where the expected counts are those of independence."""
    statistic = 0.0
    for table in tables:
        observed = np.array(table, dtype=float).reshape(2, 2)
        expected = np.outer(observed.sum(axis=1), observed.sum(axis=0)) / observed.sum()
        statistic += (observed[0, 0] - expected[0, 0]) ** 2 * (1 / expected).sum()
    return stats.chi2.sf(statistic, len(tables) - 1)


def test_homogeneity_is_exact_where_the_pooled_odds_ratio_is_one_but_for_rounding():
    found = cmh([TwoByTwo(5, 7, 9, 9), TwoByTwo(9, 5, 12, 9)])

    assert 0 < abs(found.common_or - 1) < 1e-15
    assert found.breslow_day_p == pytest.approx(0.5378900810697972, abs=1e-12)


@given(tables=st.lists(TABLE, min_size=2, max_size=4))
def test_homogeneity_agrees_with_statsmodels_where_that_has_an_answer(tables):
    told = [table for table in tables if table.is_informative]
    found = cmh(tables)
    if found.breslow_day_p is None:
        return
    if math.isclose(found.common_or, 1.0, rel_tol=1e-9):  # it divides by the difference to 1
        assert found.breslow_day_p == pytest.approx(homogeneity_at_one(told), abs=1e-6)
        return

    arrays = [np.array(table, dtype=float).reshape(2, 2) for table in told]
    expected = StratifiedTable(arrays).test_equal_odds(adjust=False).pvalue

    assert found.breslow_day_p == pytest.approx(expected, abs=1e-6)
