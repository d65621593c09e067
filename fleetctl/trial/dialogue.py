"""How a session goes on: what the next request says, or that it is over.

The rule looks only at what an agent would look at (is there the call that was asked for?) and not
at the classifier: a newer classifier changes what a conversation means, never what was sent.
"""

from __future__ import annotations

import json

from fleetctl.trial.events import Ended, Exchange, Expectation, Plant, Truth
from fleetctl.trial.reply import Call, Reply
from fleetctl.trial.scenario import ARGUMENT, TOOL, Message, Scenario, tool_result
from fleetctl.trial.workload import ToolcallWorkload


def truth_of(
    scenario: Scenario, workload: ToolcallWorkload, *, root_seed: int, run_index: int
) -> Truth:
    """Return what the session's answers should be."""
    calls = tuple(Expectation(tool=TOOL, arguments={ARGUMENT: i}) for i in scenario.order_ids)
    final = (Expectation(contains=scenario.tracking_code),) if workload.rounds > 1 else ()
    plant = Plant(root_seed, run_index, workload.sessions, len(scenario.values))
    return Truth(expects=(*calls, *final), values=scenario.values, plant=plant)


def follow_up(scenario: Scenario, exchange: Exchange, reply: Reply) -> list[Message] | None:
    """Return the messages to add before the next request, or None when the session is over.

    It goes on only when the round's expected call was made; each call of the reply then gets
    its result.
    """
    answered = exchange.ended is Ended.COMPLETE and exchange.status == 200
    if not answered or exchange.round > len(scenario.order_ids):
        return None
    wanted = {ARGUMENT: scenario.order_ids[exchange.round - 1]}
    calls = [_with_id(call, exchange.round, place) for place, call in enumerate(reply.calls)]
    if not any(call.name == TOOL and _arguments(call) == wanted for call in calls):
        return None
    return [
        {
            "role": "assistant",
            "content": reply.content,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ],
        },
        *(
            {"role": "tool", "tool_call_id": call.id, "content": _result(scenario, call)}
            for call in calls
        ),
    ]


def _with_id(call: Call, round_number: int, place: int) -> Call:
    call_id = call.id or f"call_{round_number}_{place}"
    return Call(call_id, call.name, call.arguments)


def _arguments(call: Call) -> object:
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None


def _result(scenario: Scenario, call: Call) -> str:
    arguments = _arguments(call)
    order_id = arguments.get(ARGUMENT) if isinstance(arguments, dict) else None
    return tool_result(scenario, order_id if isinstance(order_id, str) else None)
