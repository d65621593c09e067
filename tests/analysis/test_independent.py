"""The numbers once more, from their definitions: fractions, brute force, numeric likelihoods.

Nothing here shares a formula with the product. Edge counts (none, all, one session, one run)
come first, drawn ones after them.
"""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, special, stats

from fleetctl.analysis import dispersion, permutation, qbf, rates, sequential, two_arms
from fleetctl.analysis.counts import Cluster, arm
from fleetctl.analysis.history import Dispersion

DICE = random.Random(20261129)
EDGES = [(0, 1, 0, 1), (1, 1, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1), (0, 40, 40, 40), (40, 40, 0, 40)]
EDGES += [(0, 40, 0, 40), (40, 40, 40, 40), (3, 3, 0, 40), (39, 40, 40, 40), (6, 40, 12, 80)]


def _table():
    nb, nc = DICE.randint(1, 60), DICE.randint(1, 60)
    return (DICE.randint(0, nb), nb, DICE.randint(0, nc), nc)


TABLES = EDGES + [_table() for _ in range(12)]


def fisher(xb, nb, xc, nc):
    bad = xb + xc
    ways = {
        k: math.comb(nb, k) * math.comb(nc, bad - k)
        for k in range(max(0, bad - nc), min(nb, bad) + 1)
    }
    return Fraction(sum(w for w in ways.values() if w <= ways[xb]), math.comb(nb + nc, bad))


def score_statistic(xb, nb, xc, nc, difference):
    """Squared score statistic at a difference, its nuisance rate by numeric likelihood."""
    low, high = max(0.0, -difference), min(1.0, 1 - difference)

    def loss(p):
        q = min(1.0, max(0.0, p + difference))
        return -float(
            special.xlogy(xb, p)
            + special.xlog1py(nb - xb, -p)
            + special.xlogy(xc, q)
            + special.xlog1py(nc - xc, -q)
        )

    inner = optimize.minimize_scalar(loss, bounds=(low, high), options={"xatol": 1e-14}).x
    p = min((low, high, inner), key=loss)
    q = p + difference
    variance = (p * (1 - p) / nb + q * (1 - q) / nc) * (nb + nc) / (nb + nc - 1)
    distance = (xc / nc - xb / nb - difference) ** 2
    return distance / variance if variance > 0 else 0.0


@pytest.mark.parametrize("table", TABLES)
def test_fishers_p_is_the_fraction_of_tables_as_unlikely(table):
    assert two_arms.fisher_p(*table) == pytest.approx(float(fisher(*table)), rel=1e-9)


@pytest.mark.parametrize("table", TABLES)
def test_the_score_interval_ends_where_the_statistic_reaches_its_quantile(table):
    limit = float(stats.chi2.ppf(0.95, 1))

    for end in two_arms.miettinen_nurminen(*table):
        if abs(end) < 1:
            assert score_statistic(*table, end) == pytest.approx(limit, rel=1e-4)
        else:
            assert score_statistic(*table, end * (1 - 1e-9)) <= limit


@pytest.mark.parametrize("table", TABLES)
def test_boschloos_p_is_the_worst_case_of_tables_with_such_a_fisher_p(table):
    xb, nb, xc, nc = table
    rates_tried = np.linspace(0, 1, 2001)[1:-1]
    sides = []
    for cdf in (stats.hypergeom.cdf, lambda k, *rest: stats.hypergeom.sf(k - 1, *rest)):
        b, c = np.meshgrid(np.arange(nb + 1), np.arange(nc + 1), indexing="ij")
        one_sided = cdf(b, nb + nc, b + c, nb)
        extreme = one_sided <= one_sided[xb, xc] * (1 + 1e-12)
        mass_b = stats.binom.pmf(np.arange(nb + 1)[:, None], nb, rates_tried)
        mass_c = stats.binom.pmf(np.arange(nc + 1)[:, None], nc, rates_tried)
        sides.append(float(np.einsum("bp,bc,cp->p", mass_b, extreme, mass_c).max()))

    assert two_arms.boschloo_p(*table) == pytest.approx(min(1.0, 2 * min(sides)), abs=2e-3)


def _runs():
    sizes = [DICE.choice([1, 20, 40, 80]) for _ in range(DICE.randint(2, 8))]
    return [DICE.randint(0, n) for n in sizes], sizes


RUNS = [([40, 40], [40, 40]), ([0, 40], [40, 40]), ([1, 0], [1, 1]), ([0, 3, 9], [1, 40, 200])]
RUNS += [_runs() for _ in range(10)]


@pytest.mark.parametrize(("bad", "sizes"), RUNS)
def test_the_spread_of_runs_follows_from_their_single_sessions(bad, sizes):
    found = dispersion.run_dispersion([Cluster(x, n) for x, n in zip(bad, sizes, strict=True)])
    sessions = [np.repeat([1.0, 0.0], [x, n - x]) for x, n in zip(bad, sizes, strict=True)]
    everyone, k = np.concatenate(sessions), len(sizes)
    rate = everyone.mean()
    assert (found.rate, found.df) == (pytest.approx(rate), k - 1)
    if rate in (0, 1):
        assert (found.phi, found.chi2_p, found.icc, found.tarone_z) == (0, 1, None, None)
        return
    expected = np.outer(sizes, [rate, 1 - rate])
    seen = np.array([[x, n - x] for x, n in zip(bad, sizes, strict=True)])
    x2 = float(((seen - expected) ** 2 / expected).sum())
    assert found.phi == pytest.approx(x2 / (k - 1))
    assert found.chi2_p == pytest.approx(float(stats.chi2.sf(x2, k - 1)))
    if len(everyone) > k:
        inside = sum(((s - s.mean()) ** 2).sum() for s in sessions) / (len(everyone) - k)
        between = sum(len(s) * (s.mean() - rate) ** 2 for s in sessions) / (k - 1)
        usual = (len(everyone) - sum(n * n for n in sizes) / len(everyone)) / (k - 1)
        icc = (between - inside) / (between + (usual - 1) * inside)
        assert found.icc == pytest.approx(icc)
        assert found.design_effect == pytest.approx(1 + (np.mean(sizes) - 1) * icc)


def _arm(name, dice):
    sizes = [dice.choice([1, 20, 40]) for _ in range(dice.choice([0, 1, 1, 2, 3, 8]))]
    share = dice.random()
    bad = [0 if share < 0.2 else n if share < 0.3 else dice.randint(0, n) for n in sizes]
    return arm(name, bad, sizes)


def _spread_of_a_total(one, both, phi):
    """The variance of an arm's total over the binomial one: a lone boot by its own size."""
    sizes = [[run.sessions for run in arm.runs] for arm in both]
    usual = [n for own in sizes if len(own) > 1 for n in own]
    usual = np.mean(usual) if usual else min(n for own in sizes for n in own)
    if len(one.runs) > 1 or one.sessions <= usual:
        return phi
    rho = min(1.0, (phi - 1) / (usual - 1)) if usual > 1 else 0.0
    return max(phi, 1 + (one.sessions - 1) * rho)


@pytest.mark.parametrize("case", range(40))
def test_the_main_test_is_a_t_test_on_floored_dispersion(case):
    dice = random.Random(case)
    a, b = _arm("control", dice), _arm("treatment", dice)
    d0, phi0 = dice.choice([(0, 1.0), (11, 1.3), (1, 0.4), (11, 6.0)])

    found = qbf.qbf_test(a, b, Dispersion(phi0, d0) if d0 else None)

    spread, df = d0 * phi0, d0
    for one in (a, b):
        df += max(len(one.runs) - 1, 0)
        if 0 < one.bad < one.sessions:
            p = one.rate
            spread += sum(
                (r.bad - r.sessions * p) ** 2 / (r.sessions * p * (1 - p)) for r in one.runs
            )
    assert found.df == df
    if not (a.sessions and b.sessions and df):
        assert (found.phi, found.t, found.p) == (None, None, None)
        return
    phi = max(1.0, spread / df)
    na, nb = (one.sessions / _spread_of_a_total(one, (a, b), phi) for one in (a, b))
    p = (a.rate * na + b.rate * nb) / (na + nb)
    error = math.sqrt(p * (1 - p) * (1 / na + 1 / nb))
    t = (b.rate - a.rate) / error if error else 0.0
    assert found.phi == pytest.approx(phi)
    assert found.t == pytest.approx(t)
    assert found.p == pytest.approx(2 * float(stats.t.cdf(-abs(t), df)))


@pytest.mark.parametrize("case", range(15))
def test_labels_dealt_in_every_way_give_the_permutation_p_and_the_evalue(case):
    dice = random.Random(case)
    a = [dice.randint(0, 9) for _ in range(dice.randint(1, 4))]
    b = [dice.randint(0, 9) for _ in range(dice.randint(1, 4))]
    runs, places = a + b, range(len(a) + len(b))
    dealt = [
        ([runs[i] for i in places if i not in chosen], [runs[i] for i in chosen])
        for chosen in itertools.combinations(places, len(b))
    ]

    differences = [Fraction(sum(t), len(t)) - Fraction(sum(c), len(c)) for c, t in dealt]
    seen = Fraction(sum(b), len(b)) - Fraction(sum(a), len(a))
    lower = sum(d <= seen for d in differences)
    higher = sum(d >= seen for d in differences)
    p = min(Fraction(1), Fraction(2 * min(lower, higher), len(dealt)))
    assert permutation.run_permutation_test(a, b).p == pytest.approx(float(p))

    bases = (Fraction(3, 2), Fraction(5, 2), Fraction(9, 2))
    ratios = [
        psi ** sum(a) * len(dealt) / sum(psi ** sum(c) for c, _ in dealt)
        for base in bases
        for psi in (base, 1 / base)
    ]
    evalue = sequential.evalue_permuted_blocks([sequential.Block(tuple(a), tuple(b))])
    assert evalue == pytest.approx(float(sum(ratios) / len(ratios)))


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(3, 20), Fraction(1, 100), Fraction(9, 10)])
@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_clean_sessions_are_the_fewest_that_make_the_rate_too_unlikely(p, allowed):
    def likely(n):
        return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(allowed + 1))

    needed = rates.clean_sessions_needed(float(p), 0.05, allowed)

    assert likely(needed) <= Fraction(5, 100)
    assert needed == allowed + 1 or likely(needed - 1) > Fraction(5, 100)


@pytest.mark.parametrize("rho", [Fraction(1, 50), Fraction(1, 20), Fraction(9, 10)])
@pytest.mark.parametrize("size", [1, 10, 40])
def test_a_clean_run_is_an_urn_without_a_bad_draw(rho, size):
    p, urn = Fraction(1, 100), Fraction(1)
    scale = 1 / rho - 1
    for drawn in range(size):
        urn *= ((1 - p) * scale + drawn) / (scale + drawn)

    assert rates.clean_runs_needed(0.01, float(rho), size).p_zero_per_run == pytest.approx(
        float(urn), rel=1e-9
    )
