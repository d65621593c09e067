"""The smallest set that keeps an effect, over tests that are only probably right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.counts import Run
from fleetctl.analysis.minimization import (
    Keeps,
    MinimizeDesign,
    MinimizeEnding,
    NextTest,
    SubsetRun,
    next_run,
    reductions,
)


def minimize(design, rate, seed=1, unbuildable=()):
    rng = np.random.default_rng(seed)
    runs = []
    while isinstance(step := next_run(design, runs, unbuildable), NextTest):
        assert step.subset not in unbuildable
        bad = int(rng.binomial(design.sessions, rate(step.subset)))
        runs.append(SubsetRun(step.subset, Run(bad, design.sessions)))
    return step, runs


def needs(*changes, bad=0.5, good=0.0):
    return lambda subset: bad if set(changes) <= subset else good


def names(asking, keeps):
    """Drive ddmin with a test that never errs; return the result and what was asked."""
    asked = []
    try:
        subset = next(asking)
        while True:
            asked.append(subset)
            subset = asking.send(keeps(subset))
    except StopIteration as ended:
        return ended.value, asked


@settings(max_examples=150)
@given(st.integers(1, 16).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_an_exact_test_gives_exactly_the_culprits_and_asks_about_each_left_out_once(case):
    n, culprits = case
    found, asked = names(reductions(range(n)), lambda s: culprits <= s)

    assert culprits <= found
    assert len(found) == max(len(culprits), 1)
    if len(found) > 1:
        assert {found - {c} for c in found} <= set(asked)


def test_a_planted_pair_is_found_with_both_rates_unknown():
    end, runs = minimize(MinimizeDesign(8, 40), needs(2, 5, bad=0.3, good=0.01))

    assert end.ending is MinimizeEnding.MINIMAL
    assert end.subset == {2, 5}
    assert end.direction == 1
    assert end.pairs == ((2, 5),)
    assert end.rest_keeps is Keeps.NO
    assert end.masking == frozenset()
    assert len(runs) < 150


def test_changes_that_mend_are_minimised_as_well_as_changes_that_break():
    end, _ = minimize(MinimizeDesign(8, 40), needs(3, bad=0.0, good=0.3))

    assert (end.subset, end.direction) == ({3}, -1)


def test_a_change_that_hides_the_effect_is_named_when_it_is_added_again():
    """0 brings the fault, 4 hides it unless 6 is there: the effect is not monotone."""

    def rate(subset):
        return 0.5 if 0 in subset and (4 not in subset or 6 in subset) else 0.0

    end, _ = minimize(MinimizeDesign(8, 40), rate)

    assert end.subset == {0}
    assert end.masking == {4}
    assert end.pairs == ((0, 4),)


def test_a_second_cause_among_the_others_is_not_kept_quiet():
    end, _ = minimize(MinimizeDesign(8, 40), lambda s: 0.5 if s & {1, 6} else 0.0)

    assert end.subset in ({1}, {6})
    assert end.rest_keeps is Keeps.YES


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_changes_without_an_effect_are_not_minimised(rate):
    end, runs = minimize(MinimizeDesign(8, 40), lambda _: rate)

    assert end.ending is MinimizeEnding.NO_EFFECT
    assert {run.subset for run in runs} == {frozenset(), frozenset(range(8))}


def test_spent_runs_leave_the_smallest_set_known_to_keep_the_effect():
    end, runs = minimize(MinimizeDesign(8, 40, max_runs=16), needs(2, 5))

    assert end.ending is MinimizeEnding.OUT_OF_RUNS
    assert len(runs) == 16
    assert {2, 5} <= end.subset


def test_more_tests_than_the_error_was_spread_over_are_not_made():
    end, _ = minimize(MinimizeDesign(8, 40, tests=3), needs(2, 5))

    assert end.ending is MinimizeEnding.OUT_OF_RUNS
    assert len(end.tests) == 3


def test_a_rate_between_both_ends_is_unresolved_and_said_to_be_so():
    def rate(subset):
        return {0: 0.0, 1: 0.22, 2: 0.5}[len(subset & {2, 5})]

    end, _ = minimize(MinimizeDesign(6, 40, runs_per_test=3), rate, seed=8)

    assert end.unresolved


def test_a_set_that_can_not_be_built_is_unresolved_and_never_asked_for():
    """Change 5 rests on 4: without it nothing can be built."""
    broken = [s for s in map(frozenset, _subsets(6)) if 5 in s and 4 not in s]

    end, _ = minimize(MinimizeDesign(6, 40), needs(5), unbuildable=broken)

    assert end.subset == {4, 5}
    assert end.not_proven_needed == {4}


def _subsets(n):
    return [[i for i in range(n) if mask >> i & 1] for mask in range(2**n)]


def test_the_same_runs_always_lead_to_the_same_next_run():
    design = MinimizeDesign(8, 40)
    _, runs = minimize(design, needs(2, 5))

    for count in range(0, len(runs), 5):
        step = next_run(design, runs[:count])
        assert isinstance(step, NextTest)
        assert step.subset == runs[count].subset


def test_the_error_of_one_test_is_the_declared_error_spread_over_the_declared_tests():
    assert MinimizeDesign(8, 40, error=0.05, tests=50).error_per_test == pytest.approx(0.001)
