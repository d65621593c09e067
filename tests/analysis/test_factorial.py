"""What a fraction can't tell apart."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.analysis.factorial import fraction_of

FACTORS = ("a", "b", "c", "d", "e")


def names(words):
    return {"".join(sorted(word)) for word in words}


@pytest.mark.parametrize(
    ("generators", "words", "resolution"),
    [
        ([], set(), "full"),
        ([("c", "ab")], {"abc"}, "III"),
        ([("d", "abc")], {"abcd"}, "IV"),
        ([("e", "abcd")], {"abcde"}, "V"),
        ([("d", "ab"), ("e", "ac")], {"abd", "ace", "bcde"}, "III"),
    ],
)
def test_the_textbook_fractions(generators, words, resolution):
    found = fraction_of(FACTORS, generators)

    assert names(found.words) == words
    assert found.resolution_name == resolution


def test_aliases_of_main_effects_and_of_pairs():
    found = fraction_of(FACTORS, [("d", "ab"), ("e", "ac")])

    assert [found.spelled(alias) for alias in found.aliases(["a"])] == ["b x d", "c x e"]
    assert [found.spelled(alias) for alias in found.aliases(["b", "c"])] == ["d x e"]
    assert fraction_of(FACTORS, []).aliases(["a"]) == ()


@given(st.data())
def test_aliased_effects_have_the_same_column_and_others_do_not(data):
    """The algebra of words against the columns themselves."""
    parents = st.lists(st.sampled_from("abc"), min_size=2, max_size=3, unique=True)
    generators = [("d", data.draw(parents)), ("e", data.draw(parents))]
    rows = []
    for bits in itertools.product((0, 1), repeat=3):
        row = dict(zip("abc", bits, strict=True))
        row |= {factor: sum(row[p] for p in own) % 2 for factor, own in generators}
        rows.append(row)
    effects = [frozenset(c) for n in (1, 2) for c in itertools.combinations(FACTORS, n)]
    columns = {
        effect: np.array([(-1) ** sum(row[name] for name in effect) for row in rows])
        for effect in effects
    }
    found = fraction_of(FACTORS, generators)

    for effect in effects:
        same = {o for o in effects if o != effect and (columns[o] == columns[effect]).all()}
        assert set(found.aliases(effect)) == same
