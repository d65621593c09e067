"""Signs in one reply that golden sessions don't reach: values across runs, several calls."""

from __future__ import annotations

import json

import pytest

from fleetctl.trial.events import Exchange, Expectation, Plant, Truth
from fleetctl.trial.flags import Finding, ReplyContext, find
from fleetctl.trial.garbage import GarbageLimits
from fleetctl.trial.planted import planted_value
from fleetctl.trial.reply import assemble
from fleetctl.trial.scenario import TOOLS

PLANT = Plant(root_seed=1, run_index=2, sessions=40, slots=3)
OWN = tuple(planted_value(1, 2, 5, slot) for slot in range(3))


def call(order_id: str, name: str = "lookup_order") -> dict:
    return {"id": "c", "function": {"name": name, "arguments": json.dumps({"order_id": order_id})}}


def findings(
    *calls: dict,
    content: str = "",
    reasoning: str = "",
    finish: str = "stop",
    expectation: Expectation | None = None,
    plant: Plant | None = PLANT,
    tools: object = TOOLS,
) -> list[Finding]:
    message = {"content": content, "reasoning": reasoning, "tool_calls": list(calls)}
    body = json.dumps({"choices": [{"message": message, "finish_reason": finish}]})
    request = json.dumps({"messages": [], "tools": list(tools)})
    exchange = Exchange(1, request, status=200, body=body)
    context = ReplyContext(Truth(values=OWN, plant=plant), expectation, had_token=False)
    return find(exchange, assemble(exchange), context, GarbageLimits())


def flags(*calls: dict, **how: object) -> set[str]:
    return {finding.flag for finding in findings(*calls, **how)}


WANTED = Expectation("lookup_order", {"order_id": OWN[0]})


@pytest.mark.parametrize("run_index", [0, 1, 2])
def test_a_value_of_this_or_an_earlier_run_is_traced_to_its_session(run_index):
    foreign = planted_value(1, run_index, 7, 1)
    (found,) = [
        each for each in findings(call(foreign), expectation=WANTED) if each.flag == "foreign_value"
    ]
    assert f"belongs to session 7 of run {run_index}" in found.evidence
    assert "wrong_arguments" not in flags(call(foreign), expectation=WANTED)


def test_a_value_of_a_later_run_or_of_a_session_that_never_was_is_unknown():
    for stranger in (planted_value(1, 3, 7, 1), planted_value(1, 2, 40, 0)):
        assert {"unknown_value", "wrong_arguments"} <= flags(call(stranger), expectation=WANTED)


def test_without_planted_values_no_value_is_strange():
    assert flags(content="Order AB-1234-C is sent.", plant=None) == set()


def test_own_values_are_never_strange():
    assert flags(content=f"{OWN[0]} then {OWN[1]} then {OWN[2]}") == set()


def test_an_unknown_value_in_reasoning_is_no_sign():
    assert flags(content="Fine.", reasoning="Something like AB-1234-C?") == set()


def test_the_right_call_among_several_is_enough_but_the_others_are_noted():
    assert flags(call(OWN[0]), call(OWN[0]), expectation=WANTED) == {"extra_calls"}
    with_wrong = flags(call(OWN[0]), call("AB-1234-C"), expectation=WANTED)
    assert with_wrong == {"extra_calls", "unknown_value"}
    assert "undeclared_tool" in flags(call(OWN[0]), call(OWN[0], "no_tool"), expectation=WANTED)


def test_a_schema_that_can_not_be_used_hides_no_wrong_argument():
    odd = [{"function": {"name": "lookup_order", "parameters": {"type": "nothing"}}}]
    found = flags(call(OWN[1]), expectation=WANTED, tools=odd)
    assert {"schema_unusable", "wrong_arguments"} == found


def test_a_request_without_tools_makes_no_tool_undeclared():
    assert flags(call(OWN[0]), expectation=WANTED, tools=()) == set()


def test_a_planted_answer_is_found_however_it_is_written():
    wide = "".join(chr(ord(char) + 0xFEE0) for char in OWN[2])
    final = Expectation(contains=OWN[2])
    assert "answer_missing" not in flags(content=f"It is {wide}.", expectation=final)
    assert "answer_missing" in flags(content="It is gone.", expectation=final)


def test_a_right_call_at_the_token_limit_is_right():
    found = flags(call(OWN[0]), finish="length", expectation=WANTED)
    assert found == {"finish_length"}
