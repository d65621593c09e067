"""Numbers are spelled so that they neither flatter nor confuse."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.analysis.counts import Interval
from fleetctl.report import numbers


@pytest.mark.parametrize(
    ("share", "spelled"),
    [
        (0.15, "15%"),
        (0.075, "7.5%"),
        (0.009318, "0.93%"),
        (0.0, "0%"),
        (1.0, "100%"),
        (None, "n/a"),
    ],
)
def test_a_share_is_spelled_in_percent(share, spelled):
    assert numbers.percent(share) == spelled


@pytest.mark.parametrize(
    ("p", "spelled"),
    [
        (0.100815, "= 0.10"),
        (0.139833, "= 0.14"),
        (0.081145, "= 0.081"),
        (0.002827, "= 0.0028"),
        (0.04996, "= 0.0500"),
        (0.0499, "= 0.0499"),
        (1e-9, "< 0.001"),
        (None, "n/a"),
    ],
)
def test_a_p_value_keeps_the_digits_that_count(p, spelled):
    assert numbers.p_value(p) == spelled


def test_a_probability_is_never_a_certainty():
    assert numbers.probability(1.0) == "> 99.9%"
    assert numbers.probability(0.0) == "< 0.1%"
    assert numbers.probability(0.968) == "96.8%"


def test_differences_carry_their_sign_and_unknown_intervals_say_so():
    assert numbers.points(-0.075) == "-7.5"
    assert numbers.points_interval(Interval(-0.198, 0.042)) == "-19.8 to +4.2 points"
    assert numbers.points_interval(None) == numbers.percents(None) == "n/a"


@pytest.mark.parametrize(
    ("value", "unit", "spelled"),
    [(0.05, "share", "5%"), (0.2, "p", "p = 0.20"), (101.4, "ms", "101 ms"), (None, "ms", "n/a")],
)
def test_a_checks_number_has_its_unit(value, unit, spelled):
    assert numbers.amount(value, unit) == spelled


def test_no_sessions_are_no_zero_percent():
    assert numbers.ratio(0, 0) == "0/0 = n/a"
    assert numbers.count(1, "run") == "1 run"
    assert numbers.count(2, "run") == "2 runs"


@given(st.floats(0, 1), st.floats(1e-12, 0.2))
def test_a_p_beside_its_level_shows_on_which_side_it_lies(p, level):
    text, limit = numbers.p_beside(p, level), Decimal(numbers.level_text(level))
    if text.startswith("<"):
        assert p < level
        return
    # a level is rounded, too: what lies between the two spellings can't be told apart
    rounded = abs(Decimal(level) - limit)
    if abs(Decimal(p) - Decimal(level)) > 2 * rounded + Decimal(level) * Decimal("1e-9"):
        assert (Decimal(text.removeprefix("= ")) < limit) == (p < level)


@pytest.mark.parametrize(
    ("p", "level", "told"),
    [
        (0.0146, 0.0147, "= 0.0146"),
        (0.01475, 0.0147, "= 0.015"),
        (0.0002, 0.000427, "= 0.0002"),
        (0.0006, 0.000427, "= 0.0006"),
        (0.049999, 0.05, "= 0.049999"),
        (1e-9, 0.05, "< 0.001"),
    ],
)
def test_a_p_near_its_level_has_more_digits(p, level, told):
    assert numbers.p_beside(p, level) == told


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_few_are_never_none_and_most_are_never_all(bad, clean):
    text = numbers.percent(bad / (bad + clean))
    assert (float(text.removesuffix("%")) == 0) == (bad == 0)
    assert text != "100%"


@given(st.integers(-(10**5), 10**5).filter(bool))
def test_a_difference_is_never_spelled_as_none(hundred_thousandths):
    assert float(numbers.points(hundred_thousandths / 10**5)) * hundred_thousandths > 0


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        (0.0, "0 seconds"),
        (1 / 60, "1 second"),
        (0.4, "24 seconds"),
        (1.25, "75 seconds"),
        (2.0, "2 minutes"),
        (24.2, "24 minutes"),
    ],
)
def test_a_short_host_time_is_told_in_seconds_and_never_as_0_or_1_minutes(minutes, told):
    assert numbers.host_time(minutes) == told
