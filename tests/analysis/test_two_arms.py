"""Two arms, sessions taken as independent."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetctl.analysis.counts import arm
from fleetctl.analysis.two_arms import (
    barnard_p,
    boschloo_p,
    miettinen_nurminen,
    newcombe,
    p_rate_below,
    session_view,
)

ARM = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
FRACTION = st.floats(0.01, 1.0)


@given(control=ARM, treatment=ARM, scale=FRACTION)
def test_the_score_interval_is_antisymmetric_and_never_fails(control, treatment, scale):
    xb, nb, xc, nc = (value * scale for value in (*control, *treatment))

    low, high = miettinen_nurminen(xb, nb, xc, nc)

    assert (-high, -low) == miettinen_nurminen(xc, nc, xb, nb)
    assert -1 <= low <= xc / nc - xb / nb + 1e-9
    assert 1 >= high >= xc / nc - xb / nb - 1e-9


def test_the_score_interval_reproduces_the_published_example():
    assert miettinen_nurminen(48, 80, 56, 70) == pytest.approx((0.0528, 0.3382), abs=5e-5)


def test_the_score_limits_are_where_a_grid_search_finds_them():
    xb, nb, xc, nc, z = 18, 120, 4, 120, 1.959964
    rates = np.linspace(1e-6, 1 - 1e-6, 20_001)

    def statistic(difference):
        pb = rates[(rates + difference > 0) & (rates + difference < 1)]
        pc = pb + difference
        likelihood = xb * np.log(pb) + (nb - xb) * np.log1p(-pb)
        likelihood += xc * np.log(pc) + (nc - xc) * np.log1p(-pc)
        best = int(np.argmax(likelihood))
        variance = pb[best] * (1 - pb[best]) / nb + pc[best] * (1 - pc[best]) / nc
        return abs(xc / nc - xb / nb - difference) / np.sqrt(variance * 240 / 239)

    for limit in miettinen_nurminen(xb, nb, xc, nc):
        assert statistic(limit) == pytest.approx(z, abs=1e-3)


def test_arms_that_differ_in_every_session_reach_the_end_of_the_scale():
    assert miettinen_nurminen(0, 40, 40, 40).high == 1.0
    assert miettinen_nurminen(40, 40, 0, 40).low == -1.0


def test_an_interval_from_one_effective_session_says_nothing():
    assert miettinen_nurminen(0.2, 0.5, 0.0, 0.5) == (-1.0, 1.0)


@given(control=ARM, treatment=ARM)
def test_newcombe_is_antisymmetric_and_holds_the_estimate(control, treatment):
    low, high = newcombe(*control, *treatment)

    assert (-high, -low) == pytest.approx(newcombe(*treatment, *control))
    difference = treatment[0] / treatment[1] - control[0] / control[1]
    assert low <= difference + 1e-12
    assert high >= difference - 1e-12


@pytest.mark.parametrize("test", [boschloo_p, barnard_p])
def test_arms_in_which_all_sessions_end_alike_can_not_differ(test):
    assert test(0, 40, 0, 30) == 1.0
    assert test(40, 40, 30, 30) == 1.0


@settings(max_examples=60, deadline=None)
@given(control=ARM, treatment=ARM)
@example(control=(0, 1), treatment=(1, 61))
@example(control=(6, 120), treatment=(0, 2))
@example(control=(40, 40), treatment=(0, 2))
def test_the_posterior_of_lower_and_of_higher_add_up(control, treatment):
    """Also where a few sessions leave a posterior that rises like a root at 0 or 1."""
    lower = p_rate_below(*control, *treatment)

    assert lower + p_rate_below(*treatment, *control) == pytest.approx(1.0, abs=1e-9)
    assert p_rate_below(*control, *treatment, ratio=0.5) <= lower + 1e-9


def test_the_session_view_is_unknown_for_an_empty_arm_and_leaves_out_what_would_take_long():
    assert session_view(arm("control", [6], [40]), arm("treatment", [], [])) is None

    huge = session_view(arm("control", [60], [400]), arm("treatment", [20], [400]))

    assert huge is not None
    assert huge.boschloo_p is None
    assert huge.fisher_p < 0.001
