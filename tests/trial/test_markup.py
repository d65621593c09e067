"""Markup is found in every format, whole or cut, and nowhere else."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.markup import Grade, find_leaks, load_markup

GOLDEN = Path(__file__).parent.parent / "golden" / "markup"
TOOLS = ("lookup_order", "cancel_order")


def golden(kind: str) -> list:
    cases = []
    for file in sorted(GOLDEN.glob("*.toml")):
        entries = tomllib.loads(file.read_text("utf-8"))[kind]
        cases += [
            pytest.param(file.stem, entry, id=f"{file.stem}-{n}") for n, entry in enumerate(entries)
        ]
    return cases


def leaks_outside_code(text: str, prompt: str = "") -> dict[str, Grade]:
    return {
        leak.format: leak.grade
        for leak in find_leaks(text, prompt=prompt, tools=TOOLS)
        if not leak.is_in_code
    }


@pytest.mark.parametrize(("name", "entry"), golden("positive"))
def test_markup_is_found_and_graded(name, entry):
    found = leaks_outside_code(entry["text"])
    assert found.get(name) == entry["grade"]


# a cut opening counts at the end of a text only, and so does a bare end-of-text token
WHOLE = [
    case
    for case in golden("positive")
    if case.values[1]["grade"] != "partial" and not case.values[1]["text"].endswith("</s>")
]


@pytest.mark.parametrize(("name", "entry"), WHOLE)
def test_markup_is_found_in_the_middle_of_a_text(name, entry):
    text = f"Good morning.\n{entry['text']}\nAnything else?"
    assert name in leaks_outside_code(text)


@pytest.mark.parametrize(("name", "entry"), golden("near_miss"))
def test_a_near_miss_is_no_leak(name, entry):
    assert leaks_outside_code(entry["text"]) == {}


def test_every_format_has_three_positives_and_two_near_misses():
    files = {file.stem: tomllib.loads(file.read_text("utf-8")) for file in GOLDEN.glob("*.toml")}
    assert set(files) == {form.name for form in load_markup().formats}
    assert len(files) >= 10
    for name, content in files.items():
        assert len(content["positive"]) >= 3, name
        assert len(content["near_miss"]) >= 2, name


@pytest.mark.parametrize(("name", "entry"), golden("positive"))
def test_markup_that_the_prompt_quotes_is_no_leak_when_the_reply_quotes_it_too(name, entry):
    sentence = f"In our house style we write {entry['text']} and then we go on with it."
    assert leaks_outside_code(sentence, prompt=f"Repeat this. {sentence}") == {}


def test_a_marker_alone_is_a_leak_even_where_the_prompt_names_it():
    assert "hermes" in leaks_outside_code("<tool_call>", prompt="Never write <tool_call> to users.")


def test_a_marker_in_other_words_than_the_prompts_is_a_leak():
    prompt = "The sequence <tool_call> must never be shown to anybody, whatever they say."
    assert "hermes" in leaks_outside_code("Here is what I do now: <tool_call>{}", prompt=prompt)


def test_markup_in_code_is_kept_as_such():
    (leak,) = find_leaks("```\n<tool_call>{}</tool_call>\n```")
    assert (leak.format, leak.is_in_code) == ("hermes", True)


def test_markup_after_a_closed_fence_is_a_leak():
    assert "hermes" in leaks_outside_code("```\nx = 1\n```\n<tool_call>{}</tool_call>")


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="<[{|="), max_size=300))
def test_plain_text_never_leaks(text):
    assert leaks_outside_code(text.replace("lookup_order", "").replace("cancel_order", "")) == {}


@given(st.text(max_size=200))
def test_any_text_can_be_searched(text):
    find_leaks(text, prompt=text[:50], tools=TOOLS)


BARS = "|\u00a6\u01c0\u01c1\u2016\u2223\u2225\u2502\u2503\u2551\u2758\u2759\u275a\uff5c\uffe8"
UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"


@given(st.sampled_from(BARS), st.sampled_from(("", *UNSEEN)), st.integers(0, 20))
def test_every_kind_of_bar_and_every_mark_nobody_sees_is_folded(bar, mark, at):
    text = f"<{bar}DSML{bar}tool_calls></{bar}DSML{bar}tool_calls>"
    assert leaks_outside_code(text[:at] + mark + text[at:]) == {"deepseek_dsml": Grade.FULL}
