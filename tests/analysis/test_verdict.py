"""The verdict: its rules from top to bottom, its flags, and what it never claims."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.counts import ArmCounts, Run, arm
from fleetctl.analysis.design import Design
from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.guards import ArmFacts, Exposure, GuardFacts
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import Flag, Word
from fleetctl.analysis.verdict import judge

RUNS = st.lists(st.integers(0, 40), min_size=0, max_size=8)
FLIPPED = {
    Word.REDUCED: {Word.WORSE, Word.INVALID},
    Word.ELIMINATED: {Word.INVALID},
    Word.WORSE: {Word.REDUCED, Word.ELIMINATED, Word.INVALID},
    Word.NO_EFFECT: {Word.NO_EFFECT, Word.INCONCLUSIVE, Word.INVALID},
    Word.INCONCLUSIVE: {Word.INCONCLUSIVE, Word.NO_EFFECT, Word.INVALID},
    Word.INVALID: set(Word),
}


def control(*bad):
    return arm("control", bad, [40] * len(bad))


def treatment(*bad):
    return arm("treatment", bad, [40] * len(bad))


STORY = control(6, 5, 7), treatment(2, 2, 5)
CLEAN = control(6, 5, 7, 6, 4, 8, 6, 6), treatment(*[0] * 8)


@settings(deadline=None, max_examples=40)
@given(a=RUNS, b=RUNS)
def test_flipping_the_arms_flips_the_verdict(a, b):
    there = judge(control(*a), treatment(*b)).word
    back = judge(control(*b), treatment(*a)).word

    assert back in FLIPPED[there]
    assert there in FLIPPED[back]


def test_flipping_a_reduction_gives_a_deterioration():
    assert judge(control(6, 5, 7), treatment(1, 1, 2)).word is Word.REDUCED
    found = judge(control(1, 1, 2), treatment(6, 5, 7), design=Design(target=0.001))
    assert found.word is Word.WORSE


@settings(deadline=None, max_examples=60)
@given(a=RUNS, b=RUNS, phi=st.floats(0.5, 8), df=st.integers(0, 20))
def test_nothing_is_called_gone_unless_the_bound_holds(a, b, phi, df):
    found = judge(control(*a), treatment(*b), history=Dispersion(phi, df))

    if found.word is Word.ELIMINATED:
        assert found.treatment.counts.bad == 0
        assert found.treatment.upper95 <= found.design.target
        assert found.control.lower95 > found.design.target
        assert found.numbers.comparison.test.p < 0.05
    if found.word is Word.NO_EFFECT:
        assert found.numbers.comparison.test.equivalence.within(found.numbers.margin)
    if found.word.is_decided:
        assert found.numbers.comparison.test is not None


@pytest.mark.parametrize(
    ("design", "conf", "word"),
    [
        (Design(), 0.9, Word.NO_EFFECT),
        (Design(runs=8), 0.9, Word.NO_EFFECT),
        (Design(runs=12, looks=(8,)), 0.967, Word.NO_EFFECT),
        (Design(runs=20, looks=(8,)), 0.996, Word.INCONCLUSIVE),
        (Design(runs=8, looks=(4, 6)), 0.9146, Word.NO_EFFECT),
        (Design(runs=200, looks=(8,)), 0.9999, Word.INCONCLUSIVE),
    ],
)
def test_no_effect_takes_more_at_an_early_look_so_that_many_looks_err_no_oftener(
    design, conf, word
):
    found = judge(control(*[6] * 8), treatment(*[6] * 8), design=design)
    test = found.numbers.comparison.test

    assert test.ci90.within(found.numbers.margin)
    assert test.equivalence_conf == pytest.approx(conf, abs=5e-4)
    assert test.equivalence.low <= test.ci90.low + 1e-9
    assert found.word is word


def test_without_a_test_nothing_is_significant():
    found = judge(control(40), treatment(0))

    assert (found.word, found.reason) == (Word.INCONCLUSIVE, "no_replication")
    assert found.numbers.comparison.test is None
    assert found.numbers.comparison.ci95 is None
    assert found.numbers.comparison.ci90 is None
    assert found.treatment.adjusted is None
    assert Flag.ELIMINATION_REFUTED not in judge(control(8), treatment(8)).flags


def test_one_run_each_can_be_judged_with_history():
    found = judge(control(20), treatment(1), history=Dispersion(1.0, 11, ("monday",)))

    assert found.word is Word.REDUCED
    assert Flag.HISTORY_USED in found.flags


def test_equal_arms_show_no_effect_only_with_enough_runs():
    few = judge(control(6, 5, 7), treatment(6, 7, 5))
    many = judge(control(*[6] * 16), treatment(*[6] * 16))

    assert (few.word, many.word) == (Word.INCONCLUSIVE, Word.NO_EFFECT)


def test_one_boot_is_not_enough_for_gone_however_many_sessions_it_served():
    one_boot = arm("treatment", [0], [320])

    assert judge(CLEAN[0], one_boot).word is Word.REDUCED
    assert judge(*CLEAN).word is Word.ELIMINATED


def test_runs_of_one_boot_are_one_cluster():
    shared = ArmCounts("treatment", tuple(Run(2, 40, boot="b1") for _ in range(3)))

    assert judge(STORY[0], shared).numbers.comparison.df == 2


def test_correlation_seen_in_the_control_makes_gone_harder():
    lumpy = control(0, 14, 2, 12, 1, 13, 0, 14)

    found = judge(lumpy, treatment(*[0] * 8))

    assert found.word is not Word.ELIMINATED
    assert found.treatment.upper95 > 0.03
    assert found.numbers.elimination.clean_runs_left > 15


def test_correlation_known_from_history_counts_even_when_no_arm_shows_any():
    arms = control(*[40] * 8), treatment(*[0] * 8)

    assert judge(*arms).word is Word.ELIMINATED
    assert judge(*arms, history=Dispersion(3.0, 11)).treatment.upper95 > 0.01


def test_clean_sessions_that_are_still_needed_are_counted():
    elimination = judge(control(6, 5, 7), treatment(0, 0, 0)).numbers.elimination

    assert (elimination.clean_sessions_left, elimination.clean_runs_left) == (179, 5)


PATCH = Difference(Kind.PATCH, "indexer", "aa", "bb")
FLAG = Difference(Kind.FLAG, "BF16", "1", "0")
CLONES = Difference(Kind.OBSERVER, "clones", "off", "on")


def arms_with(**facts):
    return GuardFacts(ArmFacts(**facts), ArmFacts(**facts))


@pytest.mark.parametrize(
    ("reason", "guards", "flag"),
    [
        ("not_proven", arms_with(unproven=("flag of pid 7",)), None),
        ("disturbed", arms_with(disturbances=("unit restarted",)), None),
        ("confounded", GuardFacts(differences=(PATCH, FLAG)), Flag.CONFOUNDED),
        (
            "perturbing_observer",
            GuardFacts(observers=("clones",), perturbing=("clones",)),
            Flag.PERTURBING_OBSERVER,
        ),
        ("order_deviates", GuardFacts(order_deviation="run 3"), None),
        ("blocked_order", GuardFacts(orders=("AAABBB",)), Flag.BLOCKED_ORDER),
        ("not_exercised", arms_with(missed_triggers=("batch 3 of 8",)), Flag.NOT_EXERCISED),
        (
            "exposure_tokens",
            GuardFacts(
                ArmFacts(exposure=Exposure(tokens=500.0)),
                ArmFacts(exposure=Exposure(tokens=400.0)),
            ),
            Flag.EXPOSURE_DIFFERS,
        ),
        ("client_lag", arms_with(client_lag_p99_ms=250.0), None),
        ("concurrency", arms_with(achieved_concurrency=0.5), None),
        (
            "imbalance",
            GuardFacts(ArmFacts(planned_sessions=40), ArmFacts(planned_sessions=400)),
            None,
        ),
    ],
)
def test_each_guard_voids_even_the_clearest_result(reason, guards, flag):
    found = judge(*CLEAN, guards=guards)

    assert (found.word, found.reason) == (Word.INVALID, reason)
    assert [check.name for check in found.failed_checks] == [reason]
    assert flag is None or flag in found.flags


def placed(name, bad, start):
    return ArmCounts(name, tuple(Run(x, 40, position=start + 2 * i) for i, x in enumerate(bad)))


def test_a_drift_voids_and_a_weaker_one_is_told():
    falling = [12, 11, 9, 8, 6, 5]
    void = judge(placed("control", falling, 0), placed("treatment", falling, 1))
    told = judge(
        placed("control", [8, 7, 6, 5, 4], 0),
        placed("treatment", [6, 5, 6, 5, 6], 1),
    )

    assert (void.word, void.reason) == (Word.INVALID, "drift")
    assert told.word is Word.INCONCLUSIVE
    assert Flag.DRIFT in told.flags


def test_lost_sessions_void():
    lossy = ArmCounts("treatment", tuple(Run(0, 36, infra=4) for _ in range(9)))
    counted = ArmCounts("control", tuple(Run(6, 40, infra=0) for _ in range(9)))

    assert judge(counted, lossy).reason == "infra"


def test_hosts_that_disagree_void():
    def both(name, a, b):
        runs = [Run(x, 40, host="a") for x in a] + [Run(x, 40, host="b") for x in b]
        return ArmCounts(name, tuple(runs))

    found = judge(both("control", [20] * 3, [2] * 3), both("treatment", [2] * 3, [20] * 3))

    assert found.reason == "hosts_disagree"
    assert Flag.HETEROGENEOUS in found.flags


def test_a_first_and_a_last_control_run_that_disagree_void():
    found = judge(
        placed("control", [2, 20, 21, 20, 21, 20, 21, 38], 0),
        placed("treatment", [20, 21, 20, 21, 20, 21, 20, 21], 1),
    )

    assert found.word is Word.INVALID
    assert "bracket" in [check.name for check in found.failed_checks]


@pytest.mark.parametrize("bad", [(), (0,)])
def test_an_empty_arm_is_invalid_whatever_the_other_one_says(bad):
    empty = arm("treatment", bad, [0] * len(bad))

    found = judge(STORY[0], empty)

    assert (found.word, found.reason, found.numbers) == (Word.INVALID, "empty_arm", None)
    assert judge(replace(empty, name="control"), STORY[1]).reason == "empty_arm"


def test_a_forced_guard_is_told_and_voids_nothing():
    forced = GuardFacts(
        differences=(PATCH, FLAG),
        orders=("AAABBB",),
        forced=frozenset({"confounded", "blocks"}),
    )

    found = judge(*CLEAN, guards=forced)

    assert found.word is Word.ELIMINATED
    assert {Flag.CONFOUNDED, Flag.BLOCKED_ORDER} <= set(found.flags)


def test_an_observer_that_is_the_factor_and_moves_the_rate_is_perturbing():
    alone = GuardFacts(differences=(CLONES,))

    moved = judge(control(6, 5, 7), treatment(1, 1, 2), guards=alone)
    unmoved = judge(*STORY, guards=alone)

    assert (moved.word, moved.flags) == (Word.REDUCED, (Flag.PERTURBING_OBSERVER,))
    assert Flag.PERTURBING_OBSERVER not in unmoved.flags


def test_labels_that_do_not_void_are_kept_beside_the_verdict():
    found = judge(
        *CLEAN,
        design=Design(post_hoc=True),
        guards=GuardFacts(observers=("canary",), historical_control=True),
    )

    assert found.word is Word.ELIMINATED
    assert found.flags == (Flag.OBSERVER_ON, Flag.HISTORICAL_CONTROL, Flag.POST_HOC)
    assert Flag.HETEROGENEOUS in judge(control(6, 5, 7), treatment(0, 1, 12)).flags


def test_a_slower_treatment_with_equal_rates_proves_nothing():
    slow = GuardFacts(
        ArmFacts(exposure=Exposure(in_flight_s=10.0)),
        ArmFacts(exposure=Exposure(in_flight_s=15.0)),
    )

    found = judge(control(*[6] * 16), treatment(*[6] * 16), guards=slow)

    assert (found.word, found.reason) == (Word.INCONCLUSIVE, "exposure_differs")


def test_a_huge_trial_is_judged_without_enumerating_every_session():
    vast = [20_000] * 4
    found = judge(arm("control", [3000] * 4, vast), arm("treatment", [10] * 4, vast))

    assert found.word is Word.REDUCED
    assert found.numbers.outlook.runs_needed is not None


@pytest.mark.parametrize("historical", [False, True])
def test_a_control_of_one_boot_tells_no_spread_so_that_clean_boots_count_one_by_one(historical):
    guards = GuardFacts(historical_control=historical)
    single = arm("control", [18], [120])
    found = judge(single, treatment(*[0] * 8), guards=guards)

    assert (found.word, found.reason) == (Word.REDUCED, "lower")
    assert found.treatment.upper95 == pytest.approx(1 - 0.05 ** (1 / 8))
    known = judge(single, treatment(*[0] * 8), guards=guards, history=Dispersion(1.0, 12))
    assert known.word is Word.ELIMINATED


def test_a_fault_that_showed_in_every_session_of_several_boots_needs_no_such_care():
    found = judge(arm("control", [40] * 3, [40] * 3), treatment(*[0] * 8))
    assert found.word is Word.ELIMINATED


@settings(deadline=None, max_examples=60)
@given(RUNS.filter(len), RUNS.filter(len))
def test_a_one_sided_bound_lies_inside_its_arms_interval(bad, cleaner):
    """They stand beside each other in a report, so they must not rest on different models."""
    for found in (judge(control(*bad), treatment(*cleaner)), judge(control(*bad), treatment(0, 0))):
        for one in (found.control, found.treatment):
            if one.adjusted is not None:
                low, high = one.adjusted
                assert low - 1e-9 <= one.lower95 <= one.upper95 + 1e-9
                assert one.upper95 <= high + 1e-9
