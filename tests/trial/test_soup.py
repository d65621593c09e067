"""Shaken punctuation is a soup; code, JSON, tables and prose are not, however full of symbols."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.filler import filler_text
from fleetctl.trial.garbage import GarbageLimits, garbage_flags

LIMITS = GarbageLimits()

# replies of a server whose index scores another stream had overwritten
SOUPS = (
    '} memory" C"k F{"d asked given"\n_ are7he names"": next.string"{ trackingids":}k. one',
    '""k""typeorder rt", upoo."" given"ad parameters:": id"id{ ad""idootype:]:',
    'Lhe order:  oneW string""""ie"type order":""ce order,f[._ its 5""al" result }',
    '#"","object:""he]\'{ its":""""ad:{ as{ \n ," #lookup ," "',
    'The tracking code{"s"\n,,objectk#type ".descriptionk',
    '  " C"k Fobject"2 asked given"\n_ 6he names"",".string"" trackingids" given},. one',
    'Let me " s,_, lookupid"""ie"he_,:""ce6 never][ from_ its 5 " "\'  theorder',
)
SOUND = (
    "The tracking code is SG-0071-J.",
    'He said "it is sent" (on Monday), and: "it will arrive [soon]"; so wait... :-)',
    "| order | status |\n|-------|--------|\n| KG-1 | sent |\n| KG-2 | lost |",
    '{"order_id": "KG-0071-J", "items": [{"n": 1, "text": "a 5\\" pipe"}]}',
    'def f(x):\n    return {"a": [x[0], (x[1],)], "b": f"{x!r}"}\n',
    "Use this:\n```python\nprint(')]}' + \"[[[\" + '\"')\n```\nIt prints brackets.",
    "Use `[` for a test, `]]` to end it and `{` to begin a group (see `man bash`).",
    "https://example.com/a?b=[1]&c={2}#(3)_*&^%$!",
    "- [x] sent\n- [ ] paid\n- (c) 2026\n" * 4,
)


def flags(text: str, *, is_cut: bool = False) -> set[str]:
    return set(garbage_flags(text, prompt="Look it up.", limits=LIMITS, is_cut=is_cut))


@pytest.mark.parametrize("text", SOUPS)
def test_shaken_punctuation_is_a_soup(text):
    assert flags(text) == {"symbol_soup"}


@pytest.mark.parametrize("text", SOUND)
def test_what_pairs_its_brackets_is_no_soup(text):
    assert flags(text) == set()


def test_one_slip_of_the_pen_is_no_soup():
    assert flags('{"order_id": "KG-0071-J", "items": [{"n": 1}]}}') == set()


def test_what_a_cut_reply_left_open_is_no_sign():
    begun = '{"orders": [{"id": "KG-0071-J", "parts": [{"n": 1, "text": "a'

    assert flags(begun, is_cut=True) == set()
    assert flags(begun) == {"symbol_soup"}
    assert flags("Use:\n```python\nprint(')]}' + \"[[[\"", is_cut=True) == set()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("abc xyz.,-", max_size=20),
        lambda children: st.lists(children) | st.dictionaries(st.text("abc", min_size=1), children),
        max_leaves=20,
    ),
    st.integers(0, 300),
    st.sampled_from([None, 2]),
)
def test_any_json_at_any_cut_and_any_prose_are_no_soup(value, cut, indent):
    text = json.dumps(value, indent=indent)

    assert "symbol_soup" not in flags(text)
    assert "symbol_soup" not in flags(text[:cut], is_cut=True)
    assert "symbol_soup" not in flags(filler_text(max(1, cut), 3) + "\n" + text)
