"""A request is parsed once, and what cannot be served is refused in the API's words."""

import contextlib
import copy
import json
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from payload.engine.chat import render
from payload.engine.program import compile_program
from payload.engine.request import BadRequestError, parse_request
from payload.engine.tokenizer import standard_tokenizer

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"properties": {"a": {}}}}}

TOKENIZER = standard_tokenizer()
SCHEMA = {"type": "string", "enum": ["x"]}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"a": "b"}'}}
WHOLE = {
    "model": "m",
    "messages": [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": '{"next_a": "AB-1234"}'},
    ],
    "tools": [
        {"function": {"name": "look", "parameters": {"properties": {"a": SCHEMA, "b": {}}}}},
        {"function": {"name": "see", "parameters": {"properties": {"a": {}}, "required": ["a"]}}},
    ],
    "tool_choice": {"function": {"name": "see"}},
    "max_tokens": 9,
    "n": 1,
    "stop": ["x"],
    "stream_options": {"include_usage": True},
}


def places(value, way=()):
    """Yield the way to every value inside a JSON value."""
    items = enumerate(value) if isinstance(value, list) else value.items()
    for key, inner in items:
        yield (*way, key)
        if isinstance(inner, list | dict):
            yield from places(inner, (*way, key))


PLACES = list(places(WHOLE))
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "a", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


def parse(**fields):
    return parse_request({"messages": [USER], **fields}, model="m")


def test_the_least_request():
    request = parse()

    assert request.messages[0].content == "hi"
    assert request.max_tokens is None
    assert not request.stream


def test_content_parts_are_joined_and_null_is_empty():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = parse(messages=[{"role": "user", "content": parts}, {"role": "assistant"}])

    assert [message.content for message in request.messages] == ["ab", ""]


@pytest.mark.parametrize(
    ("choice", "offered", "must", "forced"),
    [
        (None, True, False, None),
        ("auto", True, False, None),
        ("none", False, False, None),
        ("required", True, True, None),
        ({"type": "function", "function": {"name": "look"}}, True, True, "look"),
    ],
)
def test_tool_choice(choice, offered, must, forced):
    request = parse(tools=[TOOL], tool_choice=choice)

    assert (bool(request.tools), request.must_call, request.forced_tool) == (offered, must, forced)


def test_the_newer_name_of_the_limit_wins():
    assert parse(max_tokens=5, max_completion_tokens=3).max_tokens == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": []}, "non-empty"),
        ({"messages": "hi"}, "non-empty"),
        ({"messages": [{"role": "wizard"}]}, "unknown role: wizard"),
        ({"messages": [{"role": "user", "content": 3}]}, "content must be"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type text"),
        ({"tools": {}}, "tools must be an array"),
        ({"tools": [{"type": "function"}]}, "function must be a JSON object"),
        ({"tools": [{"function": {"name": "a b"}}]}, "function.name"),
        ({"tools": [TOOL, TOOL]}, "same name"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "other"}}}, "not declared: other"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"max_tokens": 0}, "positive integer"),
        ({"max_tokens": "many"}, "positive integer"),
        ({"n": 2}, "n must be 1"),
        ({"logprobs": True}, "not supported"),
        ({"stop": ["a"] * 5}, "at most 4"),
        ({"stop": [""]}, "non-empty string"),
        ({"stream_options": 1}, "stream_options"),
    ],
)
def test_what_cannot_be_served_is_refused(fields, message):
    with pytest.raises(BadRequestError, match=message) as refused:
        parse(**fields)

    assert refused.value.status == 400


def test_another_model_does_not_exist():
    with pytest.raises(BadRequestError, match="`other` does not exist") as refused:
        parse(model="other")

    assert (refused.value.status, refused.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("body", [None, 3, [], "text"])
def test_a_body_that_is_no_object_is_refused(body):
    with pytest.raises(BadRequestError, match="the body must be a JSON object"):
        parse_request(body, model="m")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), ODD)
@example(("tools", 1, "function", "parameters", "required", 0), [])
@example(("tools", 0, "function", "parameters", "properties", "a", "enum"), {"a": 1})
@example(("tools", 0, "function", "parameters", "properties", "a", "enum"), 5)
@example(("model",), "\ud800")
@example(("messages", 0, "role"), "\ud800")
def test_whatever_stands_in_a_requests_place_it_is_served_or_refused_in_words(place, odd):
    body = copy.deepcopy(WHOLE)
    *way, last = place
    holder = body
    for key in way:
        holder = holder[key]
    holder[last] = odd

    assert outcome(body).encode()


def test_a_schema_at_the_edge_of_what_can_be_nested_is_refused_in_words():
    def body(depth):
        nested = '{"a":' * depth + "1" + "}" * depth
        function = f'{{"name": "f", "parameters": {{"properties": {{"a": {nested}}}}}}}'
        return f'{{"messages": [{json.dumps(USER)}], "tools": [{{"function": {function}}}]}}'

    limit = sys.getrecursionlimit()
    refused = set()
    for depth in range(limit - 200, limit):
        with contextlib.suppress(RecursionError):  # of reading it
            read = json.loads(body(depth))
            with contextlib.suppress(BadRequestError):
                parse_request(read, model="m")
                continue
            refused.add(depth)

    assert refused


def outcome(body):
    """Return the refusal's words, or the reply's text."""
    try:
        request = parse_request(body, model="m")
    except BadRequestError as refused:
        return str(refused)
    program = compile_program(request, render(request, TOKENIZER), TOKENIZER)
    return TOKENIZER.decode(program.tokens)
