"""Every dialect of the OpenAI API adds up to the same message."""

from __future__ import annotations

import json

import pytest

from fleetctl.trial.events import Ended, Exchange, SseEvent
from fleetctl.trial.reply import Call, ReplyBuilder, Usage, assemble

RIGHT = Call("c1", "lookup_order", '{"order_id":"ZK-4417-Q"}')


def stream(*chunks: dict | str) -> Exchange:
    events = tuple(SseEvent(0, c if isinstance(c, str) else json.dumps(c)) for c in chunks)
    return Exchange(round=1, request="", status=200, events=events)


def delta(**fields: object) -> dict:
    return {"model": "m", "choices": [{"index": 0, "delta": fields}]}


def call(index: int | None = 0, **fields: object) -> dict:
    fragment = dict(fields) if index is None else {"index": index, **fields}
    return delta(tool_calls=[fragment])


STREAMED = {
    "fragments": [
        call(id="c1", type="function", function={"name": "lookup_order", "arguments": ""}),
        call(function={"arguments": '{"order_id":'}),
        call(function={"arguments": '"ZK-4417-Q"}'}),
    ],
    "whole": [call(id="c1", function={"name": "lookup_order", "arguments": RIGHT.arguments})],
    "the name repeated": [
        call(id="c1", function={"name": "lookup_order", "arguments": '{"order_id":'}),
        call(id="c1", function={"name": "lookup_order", "arguments": '"ZK-4417-Q"}'}),
    ],
    "the name in pieces": [
        call(id="c1", function={"name": "lookup_"}),
        call(function={"name": "order", "arguments": RIGHT.arguments}),
    ],
    "no index": [
        call(None, id="c1", function={"name": "lookup_order", "arguments": '{"order_id":'}),
        call(None, function={"arguments": '"ZK-4417-Q"}'}),
    ],
    "null fields": [
        call(id="c1", function={"name": "lookup_order", "arguments": None}),
        call(id=None, function={"name": None, "arguments": RIGHT.arguments}),
    ],
    "a whole message in a stream": [
        {
            "choices": [
                {
                    "message": {
                        "tool_calls": [
                            {
                                "id": "c1",
                                "function": {
                                    "name": "lookup_order",
                                    "arguments": RIGHT.arguments,
                                },
                            }
                        ]
                    }
                }
            ]
        }
    ],
}


@pytest.mark.parametrize("chunks", STREAMED.values(), ids=STREAMED)
def test_a_streamed_call_is_put_together(chunks):
    assert assemble(stream(*chunks)).calls == (RIGHT,)


def test_arguments_as_an_object_become_json_and_are_noted():
    reply = assemble(stream(call(function={"name": "f", "arguments": {"a": "é"}})))
    assert reply.calls == (Call("", "f", '{"a": "é"}'),)
    assert reply.oddities == {"arguments_as_object"}


def test_several_calls_in_one_chunk_and_out_of_order_are_told_apart():
    second = {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}
    more = {"index": 0, "function": {"arguments": "}"}}
    reply = assemble(stream(delta(tool_calls=[second, first]), delta(tool_calls=[more])))
    assert reply.calls == (Call("a", "f", "{}"), Call("b", "g", "{}"))


def test_calls_without_index_are_told_apart_by_id_and_name():
    chunks = [
        call(None, id="a", function={"name": "f", "arguments": "{"}),
        call(None, id="b", function={"name": "f", "arguments": "{}"}),
        call(None, id="a", function={"arguments": "}"}),
    ]
    reply = assemble(stream(*chunks))
    assert reply.calls == (Call("a", "f", "{}"), Call("b", "f", "{}"))
    assert "no_call_index" in reply.oddities


def test_whole_calls_of_a_whole_message_stay_apart_even_with_one_id():
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": "c", "function": function}, {"id": "c", "index": 0, "function": function}]
    body = json.dumps({"choices": [{"message": {"tool_calls": calls}}]})
    reply = assemble(Exchange(1, "", status=200, body=body))
    assert reply.calls == (Call("c", "f", "{}"), Call("c", "f", "{}"))
    assert reply.oddities == frozenset()


def test_a_legacy_function_call_is_a_call():
    reply = assemble(stream(delta(function_call={"name": "f", "arguments": "{}"})))
    assert reply.calls == (Call("", "f", "{}"),)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_has_two_names(field):
    reply = assemble(stream(delta(**{field: "I "}), delta(**{field: "think."}), delta(content="A")))
    assert (reply.reasoning, reply.content) == ("I think.", "A")


def test_content_in_parts_is_text():
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert assemble(stream(delta(content=parts))).content == "ab"


def test_usage_comes_late_or_never():
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert assemble(stream({"choices": [], "usage": usage}, "[DONE]")).usage == Usage(9, 4, 3)
    assert assemble(stream(delta(content="a"), {"choices": [], "usage": None})).usage == Usage()


def test_only_the_first_choice_counts():
    chunk = {"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {}}]}
    assert assemble(stream(chunk)).content == ""


def test_unreadable_pieces_are_counted_and_the_rest_is_read():
    reply = assemble(stream("{", "[1]", "null", '{"choices": [7]}', delta(content="a"), "[DONE]"))
    assert (reply.malformed, reply.content, reply.is_done_marked) == (4, "a", True)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "9" * 5000])
@pytest.mark.parametrize(
    "chunk",
    [
        '{"choices": [], "usage": {"prompt_tokens": %s}}',
        '{"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": %s}}}',
        '{"choices": [{"index": 0, "delta": {"tool_calls": [{"index": %s, "id": "a"}]}}]}',
    ],
)
def test_a_number_of_which_no_count_can_be_made_is_an_unreadable_piece(chunk, number):
    reply = assemble(stream(delta(content="a"), chunk % number, "[DONE]"))
    assert (reply.malformed, reply.content, reply.usage) == (1, "a", Usage())


def test_a_choice_without_an_index_is_the_first_one():
    bare = {"choices": [{"index": None, "delta": {"content": "a"}}]}
    assert assemble(stream(bare, {"choices": [{"delta": {"content": "b"}}]})).content == "ab"


def test_a_tail_is_malformed_only_when_the_stream_claims_to_be_whole():
    torn = Exchange(round=1, request="", status=200, tail='data: {"cho')
    assert assemble(torn).malformed == 1
    assert assemble(Exchange(1, "", ended=Ended.CUT, status=200, tail="x")).malformed == 0


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ({"error": {"message": "busy", "code": 503}}, (503, "busy")),
        ({"error": "busy"}, (0, "busy")),
        ({"object": "error", "message": "busy", "code": 400}, (400, "busy")),
        ({"error": {"message": "busy", "code": "rate_limit"}}, (0, "busy")),
    ],
)
def test_an_error_inside_a_stream_is_seen(error, found):
    assert assemble(stream(error)).server_error == found


@pytest.mark.parametrize(
    "chunk", [delta(content="a"), delta(reasoning="a"), call(function={"name": "f"})]
)
def test_a_piece_of_an_answer_is_a_token(chunk):
    builder = ReplyBuilder()
    builder.take(json.dumps(chunk))
    assert builder.has_token


@pytest.mark.parametrize(
    "data",
    [json.dumps(delta(role="assistant", content="")), '{"choices": []}', "[DONE]", "{broken"],
)
def test_a_role_an_end_or_nonsense_is_no_token(data):
    builder = ReplyBuilder()
    builder.take(data)
    assert not builder.has_token
