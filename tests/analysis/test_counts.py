"""Counts are kept as they were counted, and impossible ones are refused."""

import pytest

from fleetctl.analysis.counts import ArmCounts, Cluster, Interval, Run, arm, pearson
from fleetctl.errors import InputError


def test_an_empty_arm_has_no_rate_rather_than_a_rate_of_zero():
    assert ArmCounts("control", ()).rate is None
    assert arm("control", [0], [40]).rate == 0.0


@pytest.mark.parametrize(("bad", "sessions", "infra"), [(41, 40, 0), (-1, 40, 0), (1, 40, -1)])
def test_an_impossible_run_is_refused(bad, sessions, infra):
    with pytest.raises(InputError, match="can't have"):
        Run(bad, sessions, infra=infra)


def test_an_arm_needs_both_numbers_of_each_run():
    with pytest.raises(InputError, match="2 counts of bad sessions for 1 runs"):
        arm("control", [1, 2], [40])


def test_runs_of_one_boot_are_one_cluster_and_empty_runs_are_none():
    counts = ArmCounts(
        "control",
        (Run(1, 40, boot="a"), Run(2, 40, boot="a"), Run(3, 40, boot="b"), Run(0, 0, boot="c")),
    )

    assert counts.clusters == (Cluster(3, 80), Cluster(3, 40))


def test_lost_sessions_are_unknown_as_soon_as_one_run_did_not_count_them():
    assert ArmCounts("control", (Run(1, 40, infra=2), Run(1, 40, infra=1))).infra == 3
    assert ArmCounts("control", (Run(1, 40, infra=2), Run(1, 40))).infra is None


def test_pearson_counts_the_degrees_of_freedom_of_an_all_clean_arm_but_no_spread():
    assert pearson([Cluster(0, 40), Cluster(0, 40)]) == (0.0, 1)
    assert pearson([Cluster(40, 40), Cluster(40, 40)]) == (0.0, 1)
    assert pearson([]) == (0.0, 0)


def test_an_interval_knows_its_side_of_zero_and_its_margin():
    assert Interval(-0.2, -0.1).excludes_zero()
    assert Interval(0.1, 0.2).excludes_zero()
    assert not Interval(-0.1, 0.1).excludes_zero()
    assert Interval(-0.1, 0.1).within(0.11)
    assert not Interval(-0.1, 0.1).within(0.1)
