"""Which change it is, from noisy runs of builds whose rates nobody knows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from fleetctl.analysis.bisection import Seen, Worlds, believe, end_rates, expected_bits
from fleetctl.analysis.bisection_rates import (
    RHO_PRIOR,
    RHOS,
    Beta,
    RatePriors,
    log_pmf,
    rates,
    rho_weights,
    told,
)
from fleetctl.analysis.history import Dispersion
from fleetctl.errors import InputError

ALONE = np.eye(len(RHOS))
INDEPENDENT = RatePriors(rho_weights=tuple(ALONE[0]))


def both_ends(good: tuple[int, int], bad: tuple[int, int], runs: int, changes: int) -> list[Seen]:
    return [Seen(0, *good)] * runs + [Seen(changes, *bad)] * runs


def test_a_clean_build_clears_the_changes_in_it_and_a_bad_one_those_after_it():
    ends = both_ends((0, 40), (8, 40), 3, changes=8)

    clean = believe(8, [*ends, Seen(4, 0, 40)], Worlds())
    bad = believe(8, [*ends, Seen(4, 8, 40)], Worlds())

    assert sum(clean.raised[:4]) < 0.02
    assert sum(bad.raised[4:]) < 0.02
    assert clean.best > 4 >= bad.best


def test_the_posterior_is_the_one_that_closed_forms_give_for_independent_sessions():
    """Without the order of rates both marginals are beta-binomial: compare on one pair of runs."""
    worlds = Worlds(rates=RatePriors(Beta(2.0, 30.0), Beta(40.0, 8.0), 0.0, tuple(ALONE[0])))
    seen = [Seen(0, 1, 40), Seen(1, 30, 40), Seen(2, 33, 40)]

    belief = believe(2, seen, worlds)

    def log_beta(prior: Beta, bad: int, sessions: int) -> float:
        a, b = prior
        return special.betaln(a + bad, b + sessions - bad) - special.betaln(a, b)

    good, bad = worlds.rates.good, worlds.rates.bad
    first = log_beta(good, 1, 40) + log_beta(bad, 63, 80)
    second = log_beta(good, 31, 80) + log_beta(bad, 33, 40)
    assert belief.raised[1] / belief.raised[0] == pytest.approx(np.exp(second - first), rel=0.02)


def test_equal_ends_say_that_nothing_changed():
    belief = believe(16, both_ends((6, 40), (6, 40), 8, changes=16), Worlds())

    assert belief.none > max(belief.best_mass, belief.reversed_mass)


def test_a_better_last_build_says_that_the_ends_are_reversed():
    belief = believe(16, both_ends((9, 40), (0, 40), 3, changes=16), Worlds())

    assert belief.reversed_mass > 0.95
    assert belief.best_mass < 0.01


def test_runs_that_vary_more_than_sessions_do_prove_less():
    ends = both_ends((0, 40), (7, 40), 2, changes=4)
    seen = [*ends, Seen(2, 4, 40)]

    rigid = believe(4, seen, Worlds(rates=INDEPENDENT))
    loose = believe(4, seen, Worlds(rates=RatePriors(rho_weights=tuple(ALONE[-1]))))

    assert sum(rigid.raised[:2]) > sum(loose.raised[:2])


def test_a_history_of_even_runs_rules_correlation_out_and_an_uneven_one_asks_for_it():
    even, uneven = Dispersion(1.0, 40), Dispersion(4.5, 40)

    assert int(np.argmax(rho_weights(even, 40))) == RHOS.index(0.0)
    assert int(np.argmax(rho_weights(uneven, 40))) == RHOS.index(0.10)
    assert rho_weights(None, 40) == RHO_PRIOR


def test_the_run_that_tells_most_is_made_between_what_is_known_good_and_known_bad():
    seen = [*both_ends((0, 40), (9, 40), 3, changes=16), Seen(4, 0, 40), Seen(12, 9, 40)]

    bits = expected_bits(16, seen, Worlds(), 40)

    assert bits.shape == (17,)
    assert 4 < int(np.argmax(bits)) < 12
    assert bits.max() <= 1.0


def test_told_rates_need_fewer_runs_than_unknown_ones():
    seen = [Seen(0, 1, 40), Seen(8, 6, 40), Seen(4, 6, 40)]
    known = Worlds(rates=RatePriors(told(0.02), told(0.15)))

    assert sum(believe(8, seen, known).raised[:4]) > sum(believe(8, seen, Worlds()).raised[:4])


def test_the_credible_set_is_the_smallest_that_holds_the_share():
    belief = believe(8, [*both_ends((0, 40), (8, 40), 3, 8), Seen(4, 0, 40)], Worlds())

    kept = belief.credible(0.95)

    mass = sum(belief.raised[c - 1] for c in kept)
    assert mass >= 0.95 * sum(belief.raised)
    assert mass - min(belief.raised[c - 1] for c in kept) < 0.95 * sum(belief.raised)


@pytest.mark.parametrize("sessions", [1, 10, 40])
def test_every_likelihood_sums_to_one(sessions):
    totals = special.logsumexp(log_pmf(sessions), axis=0)

    assert np.abs(totals).max() < 1e-9


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 12)).map(lambda t: Seen(t[0], t[1], 12)),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_of_runs_does_not_matter_and_all_worlds_add_up_to_one(seen, dice):
    shuffled = list(seen)
    dice.shuffle(shuffled)

    one, other = believe(6, seen, Worlds()), believe(6, shuffled, Worlds())

    assert one.raised == pytest.approx(other.raised)
    assert sum(one.raised) + sum(one.lowered) + one.none == pytest.approx(1.0)


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 12)).map(lambda t: Seen(t[0], t[1], 12)),
        max_size=8,
    )
)
def test_the_expected_bits_are_the_mean_loss_of_entropy(seen):
    """Against the definition: average over what the run could bring, weighed by the belief."""
    bits = expected_bits(5, seen, Worlds(), 12)

    def entropy(runs: list[Seen]) -> float:
        belief = believe(5, runs, Worlds())
        return float(special.entr([*belief.raised, *belief.lowered, belief.none]).sum())

    for point in (0, 3, 5):
        after = [entropy([*seen, Seen(point, bad, 12)]) for bad in range(13)]
        chance = [np.exp(evidence(5, [*seen, Seen(point, bad, 12)])) for bad in range(13)]
        chance = np.array(chance) / np.exp(evidence(5, seen))
        assert chance.sum() == pytest.approx(1.0, abs=1e-6)
        expected = (entropy(seen) - float(chance @ after)) / np.log(2)
        assert bits[point] == pytest.approx(max(expected, 0.0), abs=1e-6)


def evidence(changes: int, seen: list[Seen]) -> float:
    """Return the log probability of the runs over all worlds, by brute force over the grid."""
    worlds, grid = Worlds(), len(rates())
    from fleetctl.analysis.bisection_rates import model_of

    model = model_of(worlds.rates)
    logs = np.zeros((changes + 1, len(RHOS), grid))
    for run in seen:
        logs[run.point] += log_pmf(run.sessions)[run.bad]
    terms = []
    for c in range(1, changes + 1):
        before, after = logs[:c].sum(axis=0), logs[c:].sum(axis=0)
        for pair, prior in ((model.pair, 0.9), (model.pair.T, 0.05)):
            joint = np.einsum("rg,gh,rh,r->", np.exp(before), pair, np.exp(after), model.rho)
            terms.append(np.log(joint) + np.log(prior / changes))
    same = np.einsum("rg,g,r->", np.exp(logs.sum(axis=0)), model.either, model.rho)
    return float(special.logsumexp([*terms, np.log(same) + np.log(0.05)]))


def test_what_is_believed_of_two_rates_moves_with_the_runs():
    def mean(weights: np.ndarray) -> float:
        return float(np.einsum("rg,g->", weights, rates()))

    logs = np.stack([log_pmf(40)[0] * 3, log_pmf(40)[12] * 3])
    low, high = end_rates(logs, Worlds(), 1)
    high2, low2 = end_rates(logs[::-1], Worlds(), -1)

    assert mean(low) < 0.02
    assert mean(high) > 0.25
    assert (mean(low2), mean(high2)) == pytest.approx((mean(low), mean(high)), rel=0.05)


def test_a_point_that_does_not_exist_and_an_empty_list_are_refused():
    with pytest.raises(InputError, match="point 9"):
        believe(8, [Seen(9, 0, 40)], Worlds())
    with pytest.raises(InputError, match="no change"):
        believe(0, [], Worlds())
