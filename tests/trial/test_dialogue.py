"""A session goes on exactly when its round's call was made."""

from __future__ import annotations

import json

import pytest

from fleetctl.trial.dialogue import follow_up, truth_of
from fleetctl.trial.events import Ended, Exchange
from fleetctl.trial.reply import Call, Reply
from fleetctl.trial.scenario import Calibration, build_scenario
from fleetctl.trial.workload import ToolcallWorkload

WORKLOAD = ToolcallWorkload(rounds=3, context_tokens=0)
SCENARIO = build_scenario(WORKLOAD, root_seed=1, run_index=0, session=0, calibration=Calibration())
FIRST, SECOND, CODE = SCENARIO.values


def exchange(number: int = 1, **fields: object) -> Exchange:
    return Exchange(**{"round": number, "request": "", "status": 200, **fields})


def call(order_id: str = FIRST, *, name: str = "lookup_order", call_id: str = "c1") -> Call:
    return Call(call_id, name, json.dumps({"order_id": order_id}))


def test_the_truth_names_each_rounds_call_and_the_final_text():
    truth = truth_of(SCENARIO, WORKLOAD, root_seed=1, run_index=0)
    assert [each.arguments for each in truth.expects] == [
        {"order_id": FIRST},
        {"order_id": SECOND},
        None,
    ]
    assert truth.expects[2].contains == CODE
    assert truth.values == SCENARIO.values
    single = ToolcallWorkload(rounds=1)
    assert len(truth_of(SCENARIO, single, root_seed=1, run_index=0).expects) == 2


def test_after_the_right_call_its_result_leads_on():
    said = follow_up(SCENARIO, exchange(), Reply(content="Let me look.", calls=(call(),)))
    assistant, tool = said
    assert assistant["content"] == "Let me look."
    assert assistant["tool_calls"][0]["function"]["arguments"] == json.dumps({"order_id": FIRST})
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"] == "c1"
    assert json.loads(tool["content"])["next_order_id"] == SECOND


def test_a_call_without_id_gets_one():
    assistant, tool = follow_up(SCENARIO, exchange(), Reply(calls=(call(call_id=""),)))
    assert tool["tool_call_id"] == assistant["tool_calls"][0]["id"] != ""


def test_every_call_of_a_reply_is_answered():
    odd = Call("c3", "lookup_order", "{broken")
    said = follow_up(
        SCENARIO, exchange(), Reply(calls=(call(), call("ZZ-0000-Z", call_id="c2"), odd))
    )
    assert [message["role"] for message in said] == ["assistant", "tool", "tool", "tool"]
    assert "no such order" in said[2]["content"]
    assert "no such order" in said[3]["content"]


@pytest.mark.parametrize(
    ("number", "fields", "calls"),
    [
        (1, {}, ()),
        (1, {}, (call("ZZ-0000-Z"),)),
        (1, {}, (call(name="cancel_order"),)),
        (1, {}, (Call("c", "lookup_order", "{broken"),)),
        (2, {}, (call(FIRST),)),
        (3, {}, (call(CODE),)),
        (1, {"status": 500}, (call(),)),
        (1, {"ended": Ended.CUT}, (call(),)),
    ],
)
def test_everything_else_ends_the_session(number, fields, calls):
    assert follow_up(SCENARIO, exchange(number, **fields), Reply(calls=calls)) is None
