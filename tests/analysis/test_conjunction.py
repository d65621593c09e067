"""Which combination of levels tells best where sessions are bad."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.analysis.conjunction import best_conjunction
from fleetctl.analysis.counts import arm
from fleetctl.analysis.matrix_effects import Factor, MatrixCell
from fleetctl.analysis.matrix_screen import undeclared_interactions

FACTORS = [Factor(name, ("no", "yes")) for name in "abcd"]


def planted(levels, *, rng, high=0.3, low=0.01, sessions=80, runs=1):
    cells = []
    for values in itertools.product(("no", "yes"), repeat=4):
        cell = dict(zip("abcd", values, strict=True))
        rate = high if levels.items() <= cell.items() else low
        bad = [int(rng.binomial(sessions, rate)) for _ in range(runs)]
        cells.append(MatrixCell(cell, arm("x", bad, [sessions] * runs), "h"))
    return cells


@given(names=st.sets(st.sampled_from("abcd"), min_size=1, max_size=3), seed=st.integers(0, 50))
def test_a_planted_combination_is_found_exactly(names, seed):
    levels = dict.fromkeys(sorted(names), "yes")

    found = best_conjunction(FACTORS, planted(levels, rng=np.random.default_rng(seed)))

    assert dict(found.levels) == levels
    assert found.inside_rate > 5 * found.outside_rate


def test_nothing_is_explained_where_nothing_differs():
    even = [
        MatrixCell(c.levels, arm("x", [4], [80])) for c in planted({}, rng=np.random.default_rng(1))
    ]
    none = [MatrixCell(c.levels, arm("x", [0], [80])) for c in even]

    assert best_conjunction(FACTORS, even) is None
    assert best_conjunction(FACTORS, none) is None


def test_an_interaction_that_nobody_declared_is_screened_for():
    cells = planted({"a": "yes", "b": "yes"}, rng=np.random.default_rng(3), runs=4)

    found = undeclared_interactions(FACTORS, cells, [("c", "d")])

    assert found[0].pair == ("a", "b")
    assert found[0].p_bh < 0.1
    assert undeclared_interactions(FACTORS, cells, [("a", "b")])[:1] != found[:1]


def test_nothing_is_screened_for_in_few_bad_sessions():
    cells = [
        MatrixCell(c.levels, arm("x", [0], [80])) for c in planted({}, rng=np.random.default_rng(1))
    ]

    assert undeclared_interactions(FACTORS, cells, []) == ()
