"""Stored conversations of many forms become sessions, or it is said what they are not."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.errors import InputError
from fleetctl.trial.conversation import Known, read_conversations, truth_from_json
from fleetctl.trial.events import (
    Ended,
    Exchange,
    Expectation,
    Plant,
    SessionRecord,
    Truth,
    request_of,
    to_json,
)
from fleetctl.trial.outcome import classify

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
SAID = {"role": "assistant", "content": "Done."}
RESPONSE = {"choices": [{"message": SAID, "finish_reason": "stop"}]}
STREAM = 'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\n'


def outcomes(text: str) -> list[str]:
    return [classify(record).outcome for record in read_conversations(text, "file")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (STREAM, ["done"]),
        ("\ufeff\n: comment\n" + STREAM, ["done"]),
        (json.dumps(RESPONSE), ["done"]),
        (json.dumps([RESPONSE, RESPONSE]), ["done"] * 2),
        (json.dumps(RESPONSE) + "\n\n" + json.dumps(RESPONSE), ["done"] * 2),
        (json.dumps({"error": {"message": "x", "code": 503}}), ["infra"]),
        (json.dumps([SAID]), ["done"]),
        (json.dumps({"messages": [{"role": "user", "content": "Hi"}, CALL]}), ["maxrounds"]),
        (json.dumps({"messages": [CALL, {"role": "tool", "content": "1"}, SAID]}), ["done"]),
        (json.dumps({"messages": [], "tools": [TOOL], "sse": STREAM}), ["done"]),
        (json.dumps({"response": "<html>", "status": 502}), ["infra"]),
        (json.dumps({"sse": "", "ended": "stall"}), ["timeout"]),
        (json.dumps({"exchanges": [{"response": RESPONSE}, {"sse": STREAM}]}), ["done"]),
    ],
)
def test_each_form_is_understood(text, found):
    assert outcomes(text) == found


def test_a_history_gives_each_reply_the_messages_before_it_and_the_tools():
    messages = [{"role": "user", "content": "Hi"}, CALL, {"role": "tool", "content": "1"}, SAID]
    (record,) = read_conversations(json.dumps({"messages": messages, "tools": [TOOL]}), "file")
    first, second = record.exchanges
    assert request_of(first) == {"messages": messages[:1], "tools": [TOOL]}
    assert request_of(second)["messages"] == messages[:3]
    assert (first.round, second.round) == (1, 2)


def test_an_undeclared_tool_in_a_history_is_seen():
    wrong = {"role": "assistant", "tool_calls": [{"function": {"name": "g", "arguments": "{}"}}]}
    assert outcomes(json.dumps({"messages": [wrong], "tools": [TOOL]})) == ["wrong_tool"]


def test_transcript_lines_come_back_as_they_were_and_other_lines_are_passed_over():
    (record,) = read_conversations(STREAM, "file")
    lines = [{"kind": "trial", "schema": 1}, to_json(record), {"kind": "end"}]
    (again,) = read_conversations("\n".join(map(json.dumps, lines)), "file")
    assert again == record


def test_truth_may_be_written_for_one_round_or_for_all():
    plant = {"root_seed": 1, "run_index": 0, "sessions": 2, "slots": 3}
    one = truth_from_json({"tool": "f", "arguments": {"a": 1}, "values": ["v"], "plant": plant})
    assert one == Truth((Expectation("f", {"a": 1}),), ("v",), (), Plant(1, 0, 2, 3))
    many = truth_from_json({"expects": [{"tool": "f"}, {"contains": "x"}], "foreign": ["w"]})
    assert many.expects == (Expectation("f"), Expectation(contains="x"))
    assert truth_from_json({}) == Truth()


def test_what_the_file_says_goes_before_what_is_known_beside_it():
    known = Known('{"model": "beside"}', Truth(values=("beside",)))
    (record,) = read_conversations(STREAM, "file", known)
    assert (request_of(record.exchanges[0]), record.truth) == ({"model": "beside"}, known.truth)
    text = json.dumps({"request": {"model": "m"}, "sse": STREAM, "truth": {"values": ["own"]}})
    (record,) = read_conversations(text, "file", known)
    assert (request_of(record.exchanges[0]), record.truth.values) == ({"model": "m"}, ("own",))


def test_how_an_exchange_ended_may_be_told():
    text = json.dumps({"sse": STREAM, "ended": "cut", "detail": "reset by peer"})
    (record,) = read_conversations(text, "file")
    assert record.exchanges[0].ended is Ended.CUT
    assert record.exchanges[0].detail == "reset by peer"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "file"),
        ("[]", "file"),
        ("plain words", "file:1"),
        ("7", "file"),
        ('{"neither": 1}', "file"),
        (json.dumps(RESPONSE) + "\n{broken", "file:2"),
        ('{"kind": "session"}', "file"),
        ('{"sse": "", "ended": "somehow"}', "file"),
        ('{"sse": "", "truth": {"odd": 1}}', "file"),
        ('{"messages": [{"content": "no role"}]}', "file"),
        ('{"kind": "trial"}', "file"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_place(text, place):
    with pytest.raises(InputError) as caught:
        list(read_conversations(text, "file"))
    assert caught.value.what == f"not a conversation: {place}"


def test_what_comes_before_a_damaged_line_is_understood():
    whole = json.dumps(RESPONSE)
    conversations = read_conversations(f"{whole}\n{whole}\n{{torn", "file")

    assert len([next(conversations), next(conversations)]) == 2
    with pytest.raises(InputError, match="file:3"):
        next(conversations)


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\x1e", "\v"])
def test_only_a_line_feed_ends_a_line(odd):
    line = json.dumps({"choices": [{"message": {"content": f"a{odd}b"}}]}, ensure_ascii=False)

    assert len(list(read_conversations(f"{line}\n{line}\n", "file"))) == 2


def test_nesting_without_end_is_no_crash():
    with pytest.raises(InputError, match="not a conversation: file:1"):
        list(read_conversations("[" * 200_000, "file"))


@pytest.mark.parametrize("text", ["[1,2,3]", "[null]", '"x"', "NaN", "3", "null", "true"])
def test_json_without_any_object_is_said_to_be_none(text):
    with pytest.raises(InputError, match="not a conversation: file"):
        outcomes(text)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", "x", "user", "assistant", "session", "complete", STREAM, json.dumps(RESPONSE)]
    )
)
KEYS = st.sampled_from(
    [
        *("kind", "session", "labels", "truth", "exchanges", "choices", "error", "messages"),
        *("tools", "response", "sse", "request", "status", "ended", "detail", "role", "content"),
        *("tool_calls", "message", "finish_reason", "function", "name", "arguments", "expects"),
        *("values", "foreign", "plant", "tool", "contains", "delta", "index", "headers", "events"),
    ]
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
SOUND = [
    {"response": RESPONSE, "truth": {"tool": "f", "arguments": {}, "values": ["a"]}},
    {"messages": [CALL, {"role": "tool", "content": "1"}, SAID], "tools": [TOOL]},
    {"exchanges": [{"sse": STREAM, "status": 200, "request": {"messages": [], "tools": [TOOL]}}]},
    RESPONSE,
    to_json(SessionRecord(0, Truth((Expectation("f", {}),)), (Exchange(1, "{}", body="x"),))),
]


@st.composite
def spoiled(draw):
    """A sound conversation in which one value is another document."""
    whole = json.loads(json.dumps(draw(st.sampled_from(SOUND))))
    at = whole
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = draw(st.sampled_from(list(keys)))
        if not isinstance(at[key], dict | list) or not at[key] or draw(st.booleans()):
            at[key] = draw(DOCUMENTS)
            return whole
        at = at[key]


@settings(deadline=None, max_examples=200)
@given(DOCUMENTS | spoiled())
def test_any_json_is_sessions_or_is_no_conversation(document):
    with contextlib.suppress(InputError):
        outcomes(json.dumps(document))
