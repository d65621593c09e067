"""What a bisection does next, and how it ends."""

import numpy as np
import pytest

from fleetctl.analysis.bisection import Worlds
from fleetctl.analysis.bisection_rates import RatePriors, told
from fleetctl.analysis.bisection_search import (
    BisectDesign,
    End,
    Ending,
    Next,
    SearchRun,
    belief_of,
    next_step,
    rates_by_point,
)
from fleetctl.analysis.counts import Run

TOLD_APART = Worlds(rates=RatePriors(told(0.0), told(0.9)))


def search(design, rate, rng, rho=0.0):
    """Run a whole search of a service with `rate(point)` bad sessions."""
    runs = []
    while isinstance(step := next_step(design, runs), Next):
        p = rate(step.point)
        if rho:
            p = rng.beta(p * (1 / rho - 1), (1 - p) * (1 / rho - 1))
        bad = int(rng.binomial(design.sessions, p))
        runs.append(SearchRun(step.point, Run(bad, design.sessions), step.confirms))
    return step, runs


def test_a_planted_change_is_found_and_confirmed_by_runs_of_its_own():
    design = BisectDesign(16, 40)

    end, runs = search(design, lambda k: 0.15 if k >= 11 else 0.01, np.random.default_rng(1))

    assert end == End(Ending.FOUND, 11)
    confirming = [run.point for run in runs if run.confirms is not None]
    assert (confirming.count(11), confirming.count(10), len(confirming)) == (4, 4, 8)
    assert confirming[:4] == [11, 10, 10, 11]


def test_thirty_searches_at_15_percent_against_1_percent_are_right():
    design = BisectDesign(16, 40)
    rng = np.random.default_rng(20261129)
    right = 0
    for _ in range(30):
        culprit = int(rng.integers(1, 17))
        end, _ = search(design, lambda k, c=culprit: 0.15 if k >= c else 0.01, rng, rho=0.05)
        right += end == End(Ending.FOUND, culprit)

    assert right >= 28


def lots(design, culprit, seed):
    """Search a service of which every second boot has the fault, from the culprit on."""
    rng = np.random.default_rng(seed)
    end, _ = search(design, lambda k: 0.8 * (k >= culprit and rng.random() < 0.5), rng)
    return end


def test_a_fault_that_every_second_boot_has_is_found_all_the_same():
    ends = [lots(BisectDesign(8, 40), 5, seed) for seed in range(20)]

    assert sum(end == End(Ending.FOUND, 5) for end in ends) >= 18


def test_no_change_is_blamed_for_a_fault_that_every_second_boot_of_all_builds_has():
    ends = [lots(BisectDesign(8, 40), 0, seed) for seed in range(12)]

    assert sum(end.ending in (Ending.FOUND, Ending.REVERSED) for end in ends) <= 2


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.15])
def test_ends_that_are_alike_end_with_no_change(rate):
    end, runs = search(BisectDesign(16, 40), lambda _: rate, np.random.default_rng(2))

    assert end == End(Ending.NO_CHANGE)
    counts = {found.point: found.runs for found in rates_by_point(runs)}
    assert min(counts[0], counts[16]) >= 3


def mends(k):
    return 0.01 if k >= 5 else 0.2


def test_a_series_that_mends_the_fault_is_called_reversed_after_runs_of_both_ends_for_that_alone():
    end, runs = search(BisectDesign(16, 40), mends, np.random.default_rng(3))

    assert end == End(Ending.REVERSED)
    confirming = [run.point for run in runs if run.confirms == 0]
    assert (confirming.count(0), confirming.count(16), len(confirming)) == (4, 4, 8)
    assert confirming[:4] == [0, 16, 16, 0]


def test_without_a_confirmation_a_reversed_series_is_the_answer_at_once():
    design = BisectDesign(16, 40, confirm_runs=0)
    end, runs = search(design, mends, np.random.default_rng(3))

    assert end == End(Ending.REVERSED)
    assert all(run.confirms is None for run in runs)


def test_runs_that_contradict_a_reversal_send_the_search_on():
    seen = [SearchRun(k, Run(bad, 40)) for k, bad in ((8, 0), (0, 30), (4, 28), (8, 0), (0, 31))]
    seen += [SearchRun(8, Run(0, 40)), SearchRun(0, Run(30, 40))]
    design = BisectDesign(8, 40)
    step = next_step(design, seen)
    while isinstance(step, Next) and step.confirms == 0:
        seen.append(SearchRun(step.point, Run(30 if step.point else 0, 40), 0))
        step = next_step(design, seen)

    assert sum(run.confirms == 0 for run in seen) == 8
    assert isinstance(step, Next)


def test_a_spent_budget_leaves_a_credible_set_with_the_truth_in_it():
    design = BisectDesign(32, 40, max_runs=7)

    end, runs = search(design, lambda k: 0.15 if k >= 20 else 0.03, np.random.default_rng(4))

    assert end == End(Ending.OUT_OF_RUNS)
    assert len(runs) == 7
    kept = belief_of(design, runs).credible(0.95)
    assert 20 in kept
    assert len(kept) < 32


@pytest.mark.parametrize("most", [4, 5, 7, 10])
@pytest.mark.parametrize(("rate", "known"), [(0.01, Worlds()), (0.0, TOLD_APART), (0.3, Worlds())])
def test_no_search_makes_more_runs_than_its_budget_whatever_it_still_wants(most, rate, known):
    for seed in range(12):
        design = BisectDesign(8, 40, max_runs=most, worlds=known)
        end, runs = search(design, lambda _: rate, np.random.default_rng(seed))

        assert sum(run.confirms is None for run in runs) <= most
        if end.ending is Ending.NO_CHANGE:
            assert min(sum(run.point == k for run in runs) for k in (0, 8)) >= 3


def test_a_begun_confirmation_is_finished_whatever_its_first_runs_say():
    design = BisectDesign(2, 40, confirm_runs=2)
    runs = [SearchRun(k, Run(bad, 40)) for k, bad in ((2, 9), (0, 0), (1, 9), (0, 0), (2, 9))]
    first = next_step(design, runs)
    assert first == Next(1, confirms=1)

    against = [*runs, SearchRun(1, Run(0, 40), 1)]
    for _ in range(3):
        step = next_step(design, against)
        assert isinstance(step, Next)
        assert step.confirms == 1
        against.append(SearchRun(step.point, Run(10 * (1 - step.point), 40), 1))

    assert next_step(design, against) != End(Ending.FOUND, 1)


def test_both_ends_are_measured_before_anything_else():
    design = BisectDesign(5, 10)

    assert next_step(design, []) == Next(5)
    assert next_step(design, [SearchRun(5, Run(2, 10))]) == Next(0)


def test_a_run_without_sessions_is_no_evidence():
    design = BisectDesign(4, 10)
    runs = [SearchRun(4, Run(0, 0)), SearchRun(0, Run(0, 10))]

    assert belief_of(design, runs).none < 0.2


def test_runs_of_one_boot_prove_less_than_runs_of_their_own():
    design = BisectDesign(2, 40)
    ends = [SearchRun(2, Run(9, 40)), SearchRun(0, Run(0, 40))]
    own = [SearchRun(1, Run(0, 40, boot=f"boot {k}")) for k in range(4)]
    shared = [SearchRun(1, Run(0, 40, boot="one boot"))] * 4

    apart, together = (belief_of(design, [*ends, *runs]).best_mass for runs in (own, shared))

    assert apart > together


def test_without_a_confirmation_the_suspect_is_the_answer():
    design = BisectDesign(16, 40, confirm_runs=0)

    end, runs = search(design, lambda k: 0.5 if k >= 3 else 0.0, np.random.default_rng(5))

    assert end == End(Ending.FOUND, 3)
    assert all(run.confirms is None for run in runs)
