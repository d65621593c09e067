"""A request is parsed once, and what cannot be served is refused in the API's words."""

import pytest

from payload.engine.request import BadRequestError, parse_request

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"properties": {"a": {}}}}}


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
