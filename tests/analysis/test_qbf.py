"""The main test and the intervals that go with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.analysis import qbf
from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import Dispersion

RUNS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def arms(control, treatment):
    return (
        arm("control", control, [40] * len(control)),
        arm("treatment", treatment, [40] * len(treatment)),
    )


@given(control=RUNS, treatment=RUNS)
def test_swapping_the_arms_changes_only_the_sign(control, treatment):
    there = qbf.qbf_test(*arms(control, treatment))
    back = qbf.qbf_test(*arms(treatment, control))

    assert there.p == pytest.approx(back.p)
    assert there.t is None or there.t == pytest.approx(-back.t)
    assert there.phi is None or there.phi >= 1


def test_without_replication_or_history_there_is_no_test():
    assert qbf.qbf_test(*arms([6], [2])) == (None, None, 0, None)
    assert qbf.qbf_test(*arms([6], [2]), Dispersion(1.3, 11)).p is not None


def test_an_empty_arm_gives_no_test():
    assert qbf.qbf_test(*arms([6, 5], [])).p is None


@pytest.mark.parametrize("bad", [0, 40])
def test_arms_that_end_alike_do_not_differ(bad):
    assert qbf.qbf_test(*arms([bad, bad], [bad, bad])).p == 1.0


def test_dispersion_is_never_taken_below_one():
    assert qbf.pooled_dispersion([])[:2] == (1.0, 0)
    assert qbf.pooled_dispersion([], Dispersion(0.4, 11))[:2] == (1.0, 11)


def test_few_degrees_of_freedom_make_sessions_worth_less():
    worth = [qbf.inflation(qbf.Pooled(1.0, df), 0.975) for df in (2, 4, 14, 1000)]

    assert worth == sorted(worth, reverse=True)
    assert worth[-1] == pytest.approx(1.0, abs=0.01)
    assert qbf.inflation(qbf.Pooled(1.0, 0), 0.975) == 1.0


def test_correlation_needs_more_than_one_session_per_run():
    assert qbf.correlation(2.95, [40, 40]) == pytest.approx(0.05)
    assert qbf.correlation(0.5, [40]) == 0.0
    assert qbf.correlation(2.0, [1, 1]) == 0.0
    assert qbf.correlation(2.0, []) == 0.0
    assert qbf.correlation(1000.0, [40]) == 1.0


def test_a_bound_after_clean_runs_widens_with_the_correlation_seen_elsewhere():
    _, clean = arms([6, 5, 7], [0, 0, 0])
    pooled = qbf.Pooled(1.0, 4)

    assert qbf.rate_upper_bound(clean, pooled, 0.0) < qbf.rate_upper_bound(clean, pooled, 0.05)


def test_a_control_that_is_one_large_boot_is_worth_no_more_than_its_shared_luck_leaves():
    treatment = arm("treatment", [2, 9, 3, 11, 1, 8], [40] * 6)
    one_boot, many = arm("control", [120], [400]), arm("control", [12] * 10, [40] * 10)
    pooled = qbf.pooled_dispersion((one_boot.clusters, treatment.clusters))
    rho = qbf.correlation(pooled.phi, [40])

    assert pooled.size == 40
    assert pooled.of(one_boot).phi == pytest.approx(1 + 399 * rho)
    assert pooled.of(treatment) == pooled
    assert pooled.of(arm("control", [12], [40])) == pooled
    assert qbf.qbf_test(one_boot, treatment).p > qbf.qbf_test(many, treatment).p
    wide, narrow = (
        qbf.difference_interval(control, treatment, pooled) for control in (one_boot, many)
    )
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_control_of_independent_sessions_keeps_its_worth_however_large_its_boot_is():
    treatment, control = arm("treatment", [0, 1, 0, 1], [40] * 4), arm("control", [60], [400])
    pooled = qbf.pooled_dispersion((control.clusters, treatment.clusters))

    assert pooled.of(control).phi == pooled.phi == 1
