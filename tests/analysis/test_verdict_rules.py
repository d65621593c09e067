"""The rules of a verdict, branch by branch in the order in which they are tried, and each limit.

`docs/statistics.md` tells the same table to people.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fleetctl.analysis.counts import ArmCounts, DrawnBlock, Interval, Run, arm
from fleetctl.analysis.design import Design
from fleetctl.analysis.guards import (
    ArmFacts,
    Exposure,
    GuardFacts,
    OtherFailures,
    at_least,
    at_most,
    fact_checks,
)
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import MainTest, Word
from fleetctl.analysis.rates import clopper_pearson
from fleetctl.analysis.verdict import _direction as direction
from fleetctl.analysis.verdict import _is_significant as is_significant
from fleetctl.analysis.verdict import judge


def control(*bad):
    return arm("control", bad, [40] * len(bad))


def treatment(*bad):
    return arm("treatment", bad, [40] * len(bad))


def drawn(name, bad):
    blocks = [DrawnBlock(str(i // 2), 4) for i in range(len(bad))]
    runs = [Run(x, 40, block=b) for x, b in zip(bad, blocks, strict=True)]
    return ArmCounts(name, tuple(runs))


BASE = control(6, 5, 7, 6, 4, 8, 6, 6)
SLOWER = GuardFacts(
    ArmFacts(exposure=Exposure(in_flight_s=10.0)), ArmFacts(exposure=Exposure(in_flight_s=15.0))
)
LATE = Design(runs=20)


def failing(base, own):
    """Return guards with so many sessions of each run that failed without being corrupt."""
    arms = (arm("control", base, [34] * 8), arm("treatment", own, [40] * 8))
    return GuardFacts(*(ArmFacts(other_failures=OtherFailures(found)) for found in arms))


NONE, SOME = [0] * 8, [1, 0, 1, 0, 1, 0, 1, 0]

# (control, treatment, judged with, word, reason), first rule first
BRANCHES = [
    (control(), treatment(2), {}, "invalid", "empty_arm"),
    (control(6, 5, 7), treatment(), {}, "invalid", "empty_arm"),
    (control(0, 0, 0), treatment(0, 0, 0), {}, "invalid", "bug_not_reproduced"),
    (control(1, 1, 2), treatment(2, 2, 5), {}, "invalid", "bug_not_reproduced"),
    (control(40), treatment(0), {}, "inconclusive", "no_replication"),
    (BASE, treatment(*[0] * 8), {}, "eliminated", "bound_holds"),
    (BASE, treatment(*[0] * 7), {}, "reduced", "lower"),
    (BASE, treatment(0, 0, 0, 0, 0, 0, 0, 1), {}, "reduced", "lower"),
    (BASE, arm("treatment", [0], [320]), {}, "reduced", "lower"),
    (control(2, 2, 5), treatment(12, 14, 13), {}, "worse", "higher"),
    (control(6, 5, 7), treatment(0, 0, 0), {"design": LATE}, "inconclusive", "undeclared_look"),
    (
        drawn("control", [9] * 6),
        drawn("treatment", [0] * 6),
        {"design": LATE},
        "reduced",
        "lower",
    ),
    (
        control(*[6] * 16),
        treatment(*[6] * 16),
        {"guards": SLOWER},
        "inconclusive",
        "exposure_differs",
    ),
    (BASE, treatment(*[0] * 8), {"guards": failing(NONE, SOME)}, "inconclusive", "other_failures"),
    (
        BASE,
        treatment(*[1] * 8),
        {"guards": failing(SOME, [2] * 8)},
        "inconclusive",
        "other_failures",
    ),
    (
        BASE,
        treatment(*[0] * 8),
        {"guards": failing(NONE, [1, 0, 1] + [0] * 5)},
        "eliminated",
        "bound_holds",
    ),
    (BASE, treatment(*[0] * 8), {"guards": failing(SOME, SOME)}, "eliminated", "bound_holds"),
    (
        control(2, 2, 5),
        treatment(12, 14, 13),
        {"guards": failing(NONE, [1] * 8)},
        "worse",
        "higher",
    ),
    (control(*[6] * 10), treatment(*[6] * 10), {}, "no_effect", "within_margin"),
    (control(6, 5, 7), treatment(6, 7, 5), {}, "inconclusive", "not_significant"),
    (control(6, 5, 7), treatment(2, 2, 5), {}, "inconclusive", "not_significant"),
    (control(6), treatment(2), {"history": Dispersion(1.3, 11)}, "inconclusive", "not_significant"),
    (control(20), treatment(1), {"history": Dispersion(1.3, 11)}, "reduced", "lower"),
]


@pytest.mark.parametrize(("base", "own", "beside", "word", "reason"), BRANCHES)
def test_each_branch_gives_its_word_and_its_reason(base, own, beside, word, reason):
    found = judge(base, own, **beside)

    assert (str(found.word), found.reason) == (word, reason)


def test_an_earlier_rule_wins_over_every_later_one():
    nothing_holds = GuardFacts(
        ArmFacts(unproven=("x",), disturbances=("y",), client_lag_p99_ms=500.0),
        ArmFacts(unproven=(), disturbances=()),
    )

    assert judge(BASE, treatment(*[0] * 8), guards=nothing_holds).reason == "not_proven"
    assert judge(control(), treatment(), guards=nothing_holds).reason == "empty_arm"


def test_a_number_at_its_limit_is_allowed_and_the_next_one_is_not():
    assert at_most("c", 0.05, 0.05, "share").passed
    assert not at_most("c", 0.0501, 0.05, "share").passed
    assert at_least("c", 0.95, 0.95, "share").passed
    assert not at_least("c", 0.9499, 0.95, "share").passed


@pytest.mark.parametrize(("a", "b"), [(10, 11), (20, 22), (30, 33), (0.7, 0.77), (1.1, 1.21)])
def test_exactly_ten_percent_apart_is_allowed_however_it_is_rounded(a, b):
    guards = GuardFacts(
        ArmFacts(exposure=Exposure(tokens=b)), ArmFacts(exposure=Exposure(tokens=a))
    )

    found = {c.name: c.passed for c in fact_checks(BASE, treatment(0), guards)}

    assert found["exposure_tokens"] is True


def test_exactly_five_points_of_lost_sessions_apart_is_allowed():
    some = ArmCounts("control", (Run(4, 98, infra=2),))
    more = ArmCounts("treatment", (Run(4, 93, infra=7),))

    found = {c.name: c.passed for c in fact_checks(some, more, GuardFacts())}

    assert found["infra_difference"] is True
    assert found["infra"] is False


def _checks(**facts):
    guards = GuardFacts(ArmFacts(**facts), ArmFacts(**facts))
    return {c.name: c.passed for c in fact_checks(BASE, treatment(0), guards)}


@pytest.mark.parametrize(
    ("facts", "check", "passed"),
    [
        ({"client_lag_p99_ms": 100.0}, "client_lag", True),
        ({"client_lag_p99_ms": 100.1}, "client_lag", False),
        ({"achieved_concurrency": 0.95}, "concurrency", True),
        ({"achieved_concurrency": 0.949}, "concurrency", False),
    ],
)
def test_the_limits_of_the_client(facts, check, passed):
    assert _checks(**facts)[check] is passed


@pytest.mark.parametrize(("lost", "passed"), [(2, True), (3, False)])
def test_five_percent_may_be_lost(lost, passed):
    lossy = [ArmCounts(n, (Run(4, 40 - lost, infra=lost),)) for n in ("control", "treatment")]

    found = {c.name: c.passed for c in fact_checks(*lossy, GuardFacts())}

    assert found["infra"] is passed
    assert found["infra_difference"] is True


@pytest.mark.parametrize(("less", "passed"), [(10.0, True), (9.9, False)])
def test_exposure_may_differ_by_ten_percent(less, passed):
    guards = GuardFacts(
        ArmFacts(exposure=Exposure(rounds=11.0)), ArmFacts(exposure=Exposure(rounds=less))
    )

    found = {c.name: c.passed for c in fact_checks(BASE, treatment(0), guards)}

    assert found["exposure_rounds"] is passed


def test_the_control_must_lie_above_the_target_not_at_it():
    own = treatment(*[0] * 8)
    low = judge(BASE, own).control.lower95

    assert judge(BASE, own, design=Design(target=low)).reason == "bug_not_reproduced"
    assert judge(BASE, own, design=Design(target=low - 1e-9)).word is Word.ELIMINATED


def test_gone_is_a_bound_at_the_target_or_below():
    own = treatment(*[0] * 8)
    upper = judge(BASE, own).treatment.upper95

    assert judge(BASE, own, design=Design(target=upper)).word is Word.ELIMINATED
    assert judge(BASE, own, design=Design(target=upper - 1e-9)).word is Word.REDUCED


def test_the_sessions_that_are_missing_for_gone_are_just_enough():
    left = judge(control(6, 5, 7), treatment(0, 0, 0)).numbers.elimination.clean_sessions_left
    sizes = [40, 40, 40, left]

    enough = judge(BASE, arm("treatment", [0] * 4, sizes))
    one_less = judge(BASE, arm("treatment", [0] * 4, [*sizes[:3], left - 1]))

    assert (enough.word, one_less.word) == (Word.ELIMINATED, Word.REDUCED)


@pytest.mark.parametrize(
    ("p", "interval", "significant"),
    [
        (0.0499, Interval(-0.2, -0.01), True),
        (0.05, Interval(-0.2, -0.01), False),
        (0.01, Interval(-0.2, 0.0), False),
        (0.01, Interval(0.01, 0.2), True),
    ],
)
def test_an_effect_needs_p_below_the_level_and_an_interval_beside_zero(p, interval, significant):
    numbers = SimpleNamespace(comparison=SimpleNamespace(level=0.05), evalue=None)

    assert (
        is_significant(numbers, MainTest(-2.0, p, interval, interval, interval, 0.9), 0.05)
        is significant
    )


@pytest.mark.parametrize(("evalue", "significant"), [(None, False), (19.99, False), (20.0, True)])
def test_an_undeclared_look_is_decided_by_the_evalue_alone(evalue, significant):
    numbers = SimpleNamespace(comparison=SimpleNamespace(level=None), evalue=evalue)
    low = Interval(-0.2, -0.1)
    sure = MainTest(-9.0, 1e-9, low, low, low, 0.9)

    assert is_significant(numbers, sure, 0.05) is significant


def test_no_effect_needs_the_whole_interval_inside_the_margin():
    margin = 0.075

    assert Interval(-0.0749, 0.0749).within(margin)
    assert not Interval(-0.075, 0.01).within(margin)
    assert not Interval(-0.01, 0.075).within(margin)


def test_the_declared_margin_goes_before_half_the_controls_rate():
    arms = control(*[6] * 10), treatment(*[6] * 10)

    assert judge(*arms, design=Design(margin=0.02)).word is Word.INCONCLUSIVE
    assert judge(*arms).numbers.margin == pytest.approx(0.075)


def test_one_bad_session_is_never_gone_however_low_the_bound():
    vast = arm("treatment", [1, 0], [50_000, 50_000])

    found = judge(BASE, vast)

    assert found.treatment.upper95 < 0.001
    assert found.word is Word.REDUCED


def test_direction_is_read_from_the_difference():
    own = replace(
        judge(BASE, treatment(*[0] * 8)).treatment, exact=clopper_pearson(0, 320), upper95=0.5
    )
    up = SimpleNamespace(comparison=SimpleNamespace(difference=0.01))
    down = SimpleNamespace(comparison=SimpleNamespace(difference=-0.01))

    assert direction(up, own, 0.01) == (Word.WORSE, "higher")
    assert direction(down, own, 0.01) == (Word.REDUCED, "lower")
