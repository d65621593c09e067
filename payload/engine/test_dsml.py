"""Calls are read out of a stream however it is cut, and what is broken leaks as it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.engine.chat import markup_of
from payload.engine.dsml import Call, CallParser, Text
from payload.engine.tokenizer import CALLS_CLOSE, CALLS_OPEN, INVOKE_CLOSE, PARAMETER_CLOSE

ARGUMENTS = {"order_id": "ZK-4417-Q", "count": 3, "deep": {"a": [1, None]}, "note": "a < b\n"}
ONE = f"{CALLS_OPEN}\n{markup_of('lookup_order', ARGUMENTS)}\n{CALLS_CLOSE}"
A_AND_B = "\n".join((markup_of("a", {}), markup_of("b", {"x": "y"})))
TWO = f"Let me see.\n\n{CALLS_OPEN}\n{A_AND_B}\n{CALLS_CLOSE}"


def parse(parts, *, is_active=True):
    parser = CallParser(is_active=is_active)
    found = [item for part in parts for item in parser.push(part)]
    found += parser.finish()
    text = "".join(item.text for item in found if isinstance(item, Text))
    calls = [(c.name, json.loads(c.arguments)) for c in found if isinstance(c, Call)]
    return text, calls


def test_a_call_is_parsed_with_text_and_json_arguments():
    assert parse([ONE]) == ("", [("lookup_order", ARGUMENTS)])


def test_several_calls_and_the_text_before_them():
    assert parse([TWO]) == ("Let me see.", [("a", {}), ("b", {"x": "y"})])


@pytest.mark.parametrize("text", [ONE, TWO, f"{TWO} and more"])
def test_every_cut_gives_what_the_whole_gives(text):
    whole = parse([text])

    for cut in range(len(text) + 1):
        assert parse([text[:cut], text[cut:]]) == whole
    assert parse(text) == whole


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='<｜DSML>/tool_calls \nab"', max_size=60))
def test_text_without_calls_comes_through_unchanged(text):
    assert parse([text])[0] == parse(text)[0]
    if CALLS_OPEN not in text:
        assert parse(text) == (text, [])


@pytest.mark.parametrize(
    "broken",
    [
        ONE.replace(INVOKE_CLOSE, ""),
        ONE.replace(PARAMETER_CLOSE, "", 1),
        ONE.replace('invoke name="', 'invoke title="'),
        ONE.replace("parameter", "parrot", 1),
        ONE.replace(">3<", ">three<"),
        *(ONE.replace(">3<", f">{no_number}<") for no_number in ("NaN", "-Infinity", "[1e999]")),
        ONE.replace("ZK-4417-Q", "ZK</｜DSML｜4417"),
        ONE[: -len(CALLS_CLOSE) - len(INVOKE_CLOSE)],
        f"{CALLS_OPEN} salad",
    ],
)
def test_a_malformed_section_leaks_into_the_content(broken):
    text, calls = parse([broken])

    assert calls == []
    assert text == broken
    assert parse(broken) == (text, calls)


def test_calls_before_the_broken_one_still_count():
    text, calls = parse([TWO.replace('name="x"', "name=x")])

    assert calls == [("a", {})]
    assert CALLS_OPEN in text


def test_without_tools_markup_is_content():
    assert parse([ONE], is_active=False) == (ONE, [])
