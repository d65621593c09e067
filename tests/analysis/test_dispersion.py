"""Spread between runs."""

import numpy as np
import pytest
from scipy import stats

from fleetctl.analysis.counts import Cluster
from fleetctl.analysis.dispersion import betabinom_mle, run_dispersion


def clusters(*bad, sessions=40):
    return [Cluster(x, sessions) for x in bad]


def test_one_run_tells_nothing_about_spread():
    assert run_dispersion(clusters(5)) is None
    assert run_dispersion([]) is None
    assert run_dispersion([Cluster(5, 40), Cluster(0, 0)]) is None


@pytest.mark.parametrize("bad", [(0, 0, 0), (40, 40, 40)])
def test_runs_in_which_all_sessions_end_alike_have_no_correlation_to_speak_of(bad):
    found = run_dispersion(clusters(*bad))

    assert (found.x2, found.df, found.chi2_p, found.phi) == (0.0, 2, 1.0, 0.0)
    assert found.icc is None


def test_the_chi_square_agrees_with_a_contingency_table():
    runs = [Cluster(3, 40), Cluster(9, 37), Cluster(1, 20)]

    found = run_dispersion(runs)

    table = np.array([[c.bad, c.sessions - c.bad] for c in runs])
    told = stats.chi2_contingency(table, correction=False)
    assert (found.x2, found.chi2_p) == pytest.approx((told.statistic, told.pvalue))


def test_runs_of_one_session_have_no_correlation_inside_them():
    found = run_dispersion(clusters(0, 1, 1, 0, sessions=1))

    assert found.icc is None
    assert found.design_effect is None
    assert found.tarone_z is None


def test_the_model_finds_the_correlation_it_was_drawn_from():
    rng = np.random.default_rng(3)
    bad = rng.binomial(40, rng.beta(0.15 * 9, 0.85 * 9, size=400))

    fit = betabinom_mle(clusters(*(int(x) for x in bad)))

    assert (fit.p, fit.rho) == pytest.approx((0.15, 0.1), abs=0.02)
    assert fit.lrt_vs_binom > 0


@pytest.mark.parametrize("bad", [(5,), (0, 0), (40, 40)])
def test_the_model_refuses_what_it_can_not_know(bad):
    assert betabinom_mle(clusters(*bad)) is None


def test_runs_that_agree_too_well_have_no_correlation():
    fit = betabinom_mle(clusters(3, 3, 4, 3, 4, 3))

    assert (fit.rho, fit.lrt_vs_binom) == (0.0, 0.0)


def test_runs_of_all_or_nothing_are_one_vote_each():
    fit = betabinom_mle(clusters(0, 40))

    assert fit.rho == pytest.approx(1.0)
    assert fit.loglik == pytest.approx(2 * np.log(0.5), abs=1e-6)
