"""The oracle's own reply has no wrong token; what differs from it is counted where it differs."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu.on_host.replies import Count, count_exchange
from fleetctl.trial.events import Exchange
from fleetctl.trial.scenario import Calibration, build_scenario, first_messages, request_body
from fleetctl.trial.workload import ToolcallWorkload
from payload.engine.oracle import expected
from payload.engine.tokenizer import standard_tokenizer

TOKENIZER = standard_tokenizer()
WORKLOAD = ToolcallWorkload(sessions=1, context_tokens=50, stream=False)
SCENARIO = build_scenario(WORKLOAD, root_seed=0, run_index=0, session=0, calibration=Calibration())
REQUEST = request_body(
    WORKLOAD, model="m", messages=first_messages(SCENARIO), request_seed=0
).decode()
RIGHT = expected(json.loads(REQUEST), TOKENIZER)


def counted(order_id: str, arguments: str | None = None, finish: str = "tool_calls") -> Count:
    function = {
        "name": RIGHT.calls[0][0],
        "arguments": json.dumps({"order_id": order_id}) if arguments is None else arguments,
    }
    call = {"id": "1", "type": "function", "function": function}
    message = {"role": "assistant", "content": RIGHT.content, "tool_calls": [call]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    count = Count()
    exchange = Exchange(1, REQUEST, status=200, body=json.dumps(body))
    count_exchange(exchange, count, TOKENIZER)
    return count


def test_the_right_reply_has_no_wrong_token():
    count = counted(SCENARIO.order_ids[0])
    assert (count.wrong_replies, count.wrong_tokens) == (0, 0)
    assert count.tokens == len(RIGHT.tokens)


def test_a_digit_that_differs_is_one_wrong_token():
    right = SCENARIO.order_ids[0]
    digit = next(place for place, letter in enumerate(right) if letter.isdigit())
    other = "1" if right[digit] == "0" else "0"
    count = counted(f"{right[:digit]}{other}{right[digit + 1 :]}")
    assert (count.wrong_replies, count.wrong_tokens) == (1, 1)


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null"])
def test_arguments_that_are_no_object_are_wrong_and_no_error(arguments):
    assert counted("", arguments).wrong_replies == 1


def test_a_reply_that_was_cut_lacks_its_end():
    assert counted(SCENARIO.order_ids[0], finish="length").wrong_tokens == 1
