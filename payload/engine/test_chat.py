"""A conversation becomes a prompt in which only the template's own marks are special tokens."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.engine.chat import least_tokens, render
from payload.engine.request import parse_request
from payload.engine.tokenizer import (
    CALLS_CLOSE,
    CALLS_OPEN,
    CONTROL,
    INVOKE_CLOSE,
    INVOKE_OPEN,
    IS_JSON,
    IS_STRING,
    MARKUP,
    PARAMETER_CLOSE,
    PARAMETER_OPEN,
    standard_tokenizer,
)

TOKENIZER = standard_tokenizer()
SPECIAL = {TOKENIZER.pieces(mark, markup=True)[0].token: mark for mark in MARKUP}
TEXTS = st.lists(st.sampled_from((*MARKUP, *CONTROL, "a", " order", '"', ">"))).map("".join)
CALL_OF_ONE_TEXT = (
    *(CALLS_OPEN, INVOKE_OPEN, PARAMETER_OPEN, IS_STRING),
    *(PARAMETER_CLOSE, INVOKE_CLOSE, CALLS_CLOSE),
)


def called(arguments, *, name="look"):
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]
    return parse_request({"messages": messages}, model="m")


def marks(prompt):
    return tuple(SPECIAL[token] for token in prompt.tokens if token in SPECIAL)


@given(TEXTS, TEXTS, TEXTS)
def test_no_text_of_a_call_becomes_a_special_token(name, key, value):
    prompt = render(called(json.dumps({key: value}), name=name), TOKENIZER)

    assert marks(prompt) == CALL_OF_ONE_TEXT
    assert f'{name}">\n' in TOKENIZER.decode(prompt.tokens)
    assert f"{key}{IS_STRING}{value}{PARAMETER_CLOSE}" in TOKENIZER.decode(prompt.tokens)


def test_other_values_are_written_as_json_and_spell_their_marks_out_too():
    prompt = render(called(json.dumps({"a": [INVOKE_CLOSE]})), TOKENIZER)

    assert IS_JSON in marks(prompt)
    assert marks(prompt).count(INVOKE_CLOSE) == 1


@pytest.mark.parametrize("written", ['{"a": 1e999}', '{"a": NaN}', "{broken", "[" * 100_000])
def test_arguments_that_are_no_json_stay_the_text_that_they_are(written):
    prompt = render(called(written), TOKENIZER)

    assert f"{IS_STRING}{written}{PARAMETER_CLOSE}" in TOKENIZER.decode(prompt.tokens)


def test_arguments_at_the_edge_of_what_can_be_nested_are_text_at_worst():
    limit = sys.getrecursionlimit()
    for depth in range(limit - 200, limit + 1):
        written = '{"a": %s}' % ("[" * depth + "]" * depth)

        read = TOKENIZER.decode(render(called(written), TOKENIZER).tokens)

        assert written in read or f"{IS_JSON}{written[6:-1]}{PARAMETER_CLOSE}" in read


@pytest.mark.parametrize(
    "padded",
    [
        '{"a":%s1}' % (" " * 100_000),
        '{"a": "%s"}' % (r"\u0061" * 10),
        '{"a": "%s", "a": 1}' % ("x" * 100_000),
        '{"a": 1.%s}' % ("0" * 100_000),
    ],
)
def test_what_arguments_are_padded_with_counts_for_nothing(padded):
    request = called(padded)

    assert least_tokens(request, TOKENIZER) <= len(render(request, TOKENIZER).tokens) < 100


@given(TEXTS, st.dictionaries(TEXTS, TEXTS | st.integers() | st.lists(TEXTS)))
def test_the_least_that_a_conversation_takes_is_never_more_than_it_does(said, arguments):
    body = {"messages": [{"role": "user", "content": said}], "tools": []}
    for request in (parse_request(body, model="m"), called(json.dumps(arguments))):
        assert least_tokens(request, TOKENIZER) <= len(render(request, TOKENIZER).tokens)
