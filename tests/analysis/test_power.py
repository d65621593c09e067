"""What a design can see."""

import pytest

from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.power import (
    Assumed,
    power,
    power_table,
    runs_needed,
    sample_size_per_arm,
    smallest_visible,
)
from fleetctl.analysis.simulate import Truth, qbf_rejection

# Section 2d of the facts: runs of 40 per arm for 80 % power from 15 %.
FACTS = {0.075: (9, 13, 21), 0.05: (5, 8, 12), 0.03: (4, 5, 7), 0.0: (3, 3, 4)}


@pytest.mark.parametrize("rate", FACTS)
def test_the_published_table_is_met_within_one_run(rate):
    for rho, runs in zip((0.0, 0.02, 0.05), FACTS[rate], strict=True):
        assert abs(runs_needed(0.15, rate, Assumed(rho=rho)) - runs) <= 1


@pytest.mark.parametrize(
    ("rate", "runs", "rho", "tolerance"),
    [(0.05, 3, 0.0, 0.01), (0.15, 3, 0.0, 0.01), (0.0, 3, 0.0, 0.01), (0.05, 6, 0.05, 0.05)],
)
def test_power_agrees_with_simulation(rate, runs, rho, tolerance):
    simulated = qbf_rejection(Truth(0.15, rate, rho), runs, seed=11)

    assert power(0.15, rate, runs, Assumed(rho=rho)) == pytest.approx(simulated, abs=tolerance)


def test_history_lends_power_to_small_designs():
    alone, helped = Assumed(), Assumed(history=Dispersion(1.0, 11))

    assert power(0.15, 0.05, 3, alone) < power(0.15, 0.05, 3, helped)
    assert power(0.15, 0.05, 1, alone) == 0.0
    assert power(0.15, 0.05, 1, helped) > 0.0


def test_arms_that_never_vary_are_compared_without_spread():
    assert power(1.0, 0.0, 3, Assumed()) == 1.0
    assert power(0.0, 0.0, 3, Assumed()) == 0.0


def test_equal_rates_need_no_number_of_runs():
    assert sample_size_per_arm(0.15, 0.15) == (None, None)
    assert sample_size_per_arm(0.15, 0.15).runs(40, 1.0) is None
    assert runs_needed(0.15, 0.15, Assumed()) is None


def test_too_small_a_difference_is_said_to_need_too_many_runs():
    assert runs_needed(0.15, 0.149, Assumed()) is None
    # The simple formula says 4 runs, the main test needs one more.
    assert sample_size_per_arm(0.15, 0.05).runs(40, 1.0) == 4
    assert runs_needed(0.15, 0.05, Assumed(), most=4) is None


def test_the_smallest_visible_rate_is_seen_with_just_the_wanted_power():
    assumed = Assumed()
    seen = smallest_visible(0.15, 6, assumed)

    assert power(0.15, seen, 6, assumed) == pytest.approx(0.8, abs=1e-3)
    assert smallest_visible(0.15, 2, assumed) is None
    assert smallest_visible(0.0, 6, assumed) is None


def test_a_design_between_can_see_only_a_rate_of_exactly_zero():
    found = [smallest_visible(0.15, 3, Assumed(rho=rho / 1000)) for rho in range(30, 50)]

    assert 0.0 in found


def test_three_runs_per_arm_can_only_confirm_a_complete_fix():
    assert power_table(0.15, Assumed(), runs=3).only_a_complete_fix
    assert power_table(0.15, Assumed(), runs=2).only_a_complete_fix
    assert not power_table(0.15, Assumed(), runs=8).only_a_complete_fix


def test_the_table_holds_the_users_own_rate_correlation_and_time():
    table = power_table(0.15, Assumed(rho=0.1), runs=3, target=0.06, minutes_per_run=4.0)

    assert 0.06 in [row.treatment_rate for row in table.rows]
    assert table.rhos == (0.0, 0.02, 0.05, 0.1)
    assert table.reach.host_minutes == 24.0
    assert table.reach.runs_for_target > 8
    assert 0 < table.reach.power < 0.8


def test_a_rate_that_is_in_the_table_already_is_not_told_twice():
    rates = [row.treatment_rate for row in power_table(0.15, Assumed(), runs=3, target=0.05).rows]

    assert len(rates) == 4


def test_large_runs_are_enumerated_in_steps_without_losing_probability(monkeypatch):
    assumed = Assumed(sessions=1000, rho=0.05)
    in_steps = power(0.15, 0.05, 3, assumed)
    monkeypatch.setattr("fleetctl.analysis.power.MOST_TOTALS", 10_000)

    assert in_steps == pytest.approx(power(0.15, 0.05, 3, assumed), abs=1e-3)
