"""Checks of the counts themselves."""

from fleetctl.analysis.checks import count_checks
from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.design import Design
from fleetctl.analysis.guards import ArmFacts, GuardFacts
from fleetctl.analysis.qbf import pooled_dispersion


def placed(name, bad, start, step=2, host="", sessions=40):
    runs = [Run(x, sessions, position=start + step * i, host=host) for i, x in enumerate(bad)]
    return ArmCounts(name, tuple(runs))


def check(name, control, treatment, facts=None, target=0.01):
    pooled = pooled_dispersion((control.clusters, treatment.clusters))
    checks = count_checks(control, treatment, facts or GuardFacts(), pooled, Design(target=target))
    return next(c for c in checks if c.name == name)


def test_a_rate_that_falls_from_run_to_run_is_a_drift():
    falling = placed("control", [8, 7, 6, 5, 3, 2], 0)
    flat = placed("treatment", [4, 5, 4, 5, 4, 5], 1)

    assert check("drift", falling, flat).is_void
    assert check("drift", flat, flat).passed


def test_a_trend_counts_inside_each_host_only():
    def both(name, start):
        first = placed(name, [9, 9, 8], start, host="a")
        return ArmCounts(name, first.runs + placed(name, [2, 2, 1], start + 6, host="b").runs)

    assert check("drift", both("control", 0), both("treatment", 1)).passed


def test_an_effect_of_the_arm_is_no_drift():
    control = placed("control", [9, 8, 9, 8], 0)
    treatment = placed("treatment", [1, 0, 1, 0], 4)

    assert check("drift", control, treatment).value > 0.05


def test_without_positions_nothing_is_said_about_time():
    unplaced = ArmCounts("control", (Run(6, 40), Run(5, 40)))

    assert check("drift", unplaced, unplaced).passed is None
    assert check("bracket", unplaced, unplaced).passed is None


def test_a_first_and_a_last_control_run_that_disagree_void_the_bracket():
    control = placed("control", [2, 20, 21, 20, 21, 20, 21, 38], 0)
    steady = placed("treatment", [20, 21, 20, 21, 20, 21, 20, 21], 1)

    assert check("bracket", control, steady).is_void
    assert check("bracket", steady, steady).passed


def test_a_bracket_needs_replication_and_some_but_not_only_bad_sessions():
    clean = placed("control", [0, 0], 0)

    assert check("bracket", clean, clean).passed is None
    assert check("bracket", placed("control", [3], 0), clean).passed is None


def test_an_effect_that_differs_between_hosts_is_no_single_effect():
    def both(name, a, b):
        first, second = placed(name, a, 0, host="a"), placed(name, b, 0, host="b")
        return ArmCounts(name, first.runs + second.runs)

    control = both("control", [20, 20, 20], [2, 2, 2])
    treatment = both("treatment", [2, 2, 2], [20, 20, 20])

    assert check("hosts_disagree", control, treatment).is_void
    assert check("hosts_disagree", control, control).passed
    one_host = placed("control", [6, 5], 0)
    assert check("hosts_disagree", one_host, one_host).passed is None


def planned(control, treatment):
    return GuardFacts(ArmFacts(planned_sessions=control), ArmFacts(planned_sessions=treatment))


def test_arms_that_did_not_get_their_share_of_sessions_are_imbalanced():
    control = placed("control", [6, 5, 7], 0)
    short = placed("treatment", [2], 1)

    assert check("imbalance", control, short, planned(120, 120)).is_void
    assert check("imbalance", control, short, planned(120, 40)).passed
    assert check("imbalance", control, short).passed is None
    assert check("imbalance", control, short, planned(120, 0)).passed is None


def test_runs_that_disagree_are_told_but_void_nothing():
    lumpy = placed("treatment", [0, 1, 12], 1)
    control = placed("control", [6, 5, 7], 0)

    found = check("heterogeneous_treatment", control, lumpy)

    assert found.passed is False
    assert not found.is_void
    assert check("heterogeneous_control", control, lumpy).passed
    one = placed("control", [6], 0)
    assert check("heterogeneous_control", one, lumpy).passed is None


def test_a_control_that_might_be_below_the_target_shows_no_fault():
    faint = placed("control", [1, 1, 2], 0)

    assert check("bug_not_reproduced", faint, faint).is_void
    assert check("bug_not_reproduced", faint, faint, target=0.001).passed
