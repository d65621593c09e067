"""The compiled program says what the oracle says, and copies from where it claims to."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.engine.chat import render
from payload.engine.conversations import random_body
from payload.engine.oracle import expected
from payload.engine.program import compile_program
from payload.engine.request import parse_request
from payload.engine.sequence import Sequence, pointers
from payload.engine.tokenizer import PLAN, standard_tokenizer

TOKENIZER = standard_tokenizer()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"order_id": {"type": "string"}},
                "required": ["order_id"],
            },
        },
    }
    for name in ("lookup_order", "cancel_order")
]


def compiled(body):
    request = parse_request(body, model="m")
    prompt = render(request, TOKENIZER)
    return prompt, compile_program(request, prompt, TOKENIZER)


def said(body):
    _, program = compiled(body)
    return TOKENIZER.decode(program.tokens)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_the_program_equals_the_oracle(seed):
    body = random_body(random.Random(seed))

    prompt, program = compiled(body)

    assert program.tokens == expected(body, TOKENIZER).tokens
    hole = TOKENIZER.control[PLAN]
    for token, entry, source in zip(program.tokens, program.entries, program.sources, strict=True):
        assert entry == token if source is None else prompt.tokens[source] == token
        assert (entry == hole) == (source is not None)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_following_the_pointers_leads_to_each_token(seed):
    prompt, program = compiled(random_body(random.Random(seed)))
    sequence = Sequence(0, prompt.tokens, program, 100)
    context = (*prompt.tokens, *program.entries)

    first, second, third = pointers(sequence, len(context))

    base = len(prompt.tokens)
    found = [context[third[second[first[base + i]]]] for i in range(len(program.tokens))]
    assert tuple(found) == program.tokens


def conversation(*messages):
    system = {"role": "system", "content": "You are a clerk [desk 5f0c2d]. Use lookup_order."}
    return {"messages": [system, *messages], "tools": TOOLS}


USER = {"role": "user", "content": "Please look up order ZK-4417-Q."}


def answered(content):
    call = {"name": "lookup_order", "arguments": json.dumps({"order_id": "ZK-4417-Q"})}
    calls = [{"id": "call_1", "type": "function", "function": call}]
    return (
        USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": content},
    )


def test_a_planted_value_in_the_question_becomes_the_argument():
    assert expected(conversation(USER), TOKENIZER).calls == (
        ("lookup_order", {"order_id": "ZK-4417-Q"}),
    )


def test_the_planted_value_is_copied_from_the_message_that_holds_it():
    prompt, program = compiled(conversation(USER))
    span = prompt.spans[1]

    copied = [source for source in program.sources if source is not None]

    assert TOKENIZER.decode(prompt.tokens[source] for source in copied) == "ZK-4417-Q"
    assert all(source in span for source in copied)


def test_a_result_that_names_a_next_id_is_followed_by_a_call():
    body = conversation(*answered('{"order_id": "ZK-4417-Q", "next_order_id": "MB-2093-T"}'))

    assert expected(body, TOKENIZER).calls == (("lookup_order", {"order_id": "MB-2093-T"}),)


def test_a_final_result_is_told_in_a_sentence():
    body = conversation(*answered('{"order_id": "MB-2093-T", "tracking_code": "QX-5512-H"}'))

    assert said(body) == "The tracking code is QX-5512-H."


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Look up AB-1234-C and DE-5678-F.", ["AB-1234-C", "DE-5678-F"]),
        ("Use cancel_order for AB-1234-C.", ["AB-1234-C"]),
        ("Call lookup_order with the id on your desk.", ["5f0c2d"]),
    ],
)
def test_several_values_are_several_calls(text, calls):
    found = expected(conversation({"role": "user", "content": text}), TOKENIZER).calls

    assert [arguments["order_id"] for _, arguments in found] == calls


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("hi there", "You said: hi there."),
        ("", "Hello."),
        ("<｜DSML｜tool_calls>", "You said: DSML tool_calls."),
        ("雪", "Hello."),
    ],
)
def test_plain_talk_is_echoed_without_markup(text, reply):
    assert said({"messages": [{"role": "user", "content": text}]}) == reply
