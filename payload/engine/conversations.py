"""Random requests of every kind the API accepts, for the tests and for a look at the engine."""

from __future__ import annotations

import json
import random
from string import ascii_uppercase
from typing import Any

WORDS = (
    *("please", "look", "up", "the", "order", "and", "tell", "me", "its", "status", "today"),
    *("water", "stone", "table", "river", "unknownword", "naïve", "雪", "don't", "C-3PO", "1984"),
    *("x86_64", "<tag>", "{json}", "｜bars｜", "next_order_id", "<｜DSML｜tool_calls>", "", "\n"),
)
TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


def opaque_value(draw: random.Random) -> str:
    """Return a value like those that workloads plant."""
    letters = "".join(draw.choice(ascii_uppercase) for _ in range(2))
    return f"{letters}-{draw.randrange(10_000):04d}-{draw.choice(ascii_uppercase)}"


def random_body(draw: random.Random, *, words: int = 40) -> dict[str, Any]:
    """Return the body of a request that the server accepts."""
    tools = [_tool(draw, place) for place in range(draw.choice((0, 1, 1, 2, 3)))]
    messages = _messages(draw, tools, words)
    body: dict[str, Any] = {"messages": messages}
    if tools:
        body["tools"] = tools
        body["tool_choice"] = _choice(draw, tools)
    return body


def _text(draw: random.Random, words: int) -> str:
    said = [draw.choice(WORDS) for _ in range(draw.randrange(words + 1))]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        said.insert(draw.randrange(len(said) + 1), opaque_value(draw))
    return " ".join(said)


def _tool(draw: random.Random, place: int) -> dict[str, Any]:
    names = ("order_id", "city", "note", 'bad"name', "count", "kind")[: draw.randrange(1, 7)]
    properties: dict[str, Any] = {name: {"type": draw.choice(TYPES)} for name in names}
    if draw.random() < 0.3:
        properties["mode"] = {"enum": draw.choice((["fast", "slow"], [3], ["<｜x"]))}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if draw.random() < 0.7:
        schema["required"] = draw.sample(list(properties), k=draw.randrange(len(properties) + 1))
    function: dict[str, Any] = {"name": f"lookup_order{place or ''}", "description": "Look up."}
    if draw.random() < 0.9:
        function["parameters"] = schema
    return {"type": "function", "function": function}


def _choice(draw: random.Random, tools: list[dict[str, Any]]) -> object:
    forced = {"type": "function", "function": {"name": draw.choice(tools)["function"]["name"]}}
    return draw.choice(("auto", "auto", "auto", "none", "required", forced))


def _messages(draw: random.Random, tools: list[dict[str, Any]], words: int) -> list[Any]:
    messages: list[dict[str, Any]] = []
    if draw.random() < 0.6:
        messages.append({"role": "system", "content": _text(draw, words)})
    for _ in range(draw.randrange(1, 3)):
        said = _text(draw, words)
        if tools and draw.random() < 0.4:
            said += f" use {draw.choice(tools)['function']['name']}"
        messages.append({"role": "user", "content": _parts(draw, said)})
        if draw.random() < 0.5:
            messages += _called(draw, tools, words)
    return messages


def _parts(draw: random.Random, said: str) -> object:
    if draw.random() < 0.8:
        return said
    cut = draw.randrange(len(said) + 1)
    return [{"type": "text", "text": part} for part in (said[:cut], said[cut:])]


def _called(draw: random.Random, tools: list[dict[str, Any]], words: int) -> list[Any]:
    names = [tool["function"]["name"] for tool in tools] or ["ghost"]
    calls = [
        {
            "id": f"call_{place}",
            "type": "function",
            "function": {
                "name": draw.choice(names),
                "arguments": draw.choice(
                    (json.dumps({"order_id": opaque_value(draw), "n": 1}), "{broken")
                ),
            },
        }
        for place in range(draw.randrange(1, 3))
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": _result(draw, words)}
        for call in calls
    ]
    answer = {"role": "assistant", "content": draw.choice((None, "", "Hm.")), "tool_calls": calls}
    return [answer, *results]


def _result(draw: random.Random, words: int) -> str:
    value = opaque_value(draw)
    kinds = (
        json.dumps({"order_id": value, "next_order_id": opaque_value(draw)}),
        json.dumps({"order_id": value, "tracking_code": value}),
        json.dumps({"next_city": value, "count": draw.randrange(9), "note": None}),
        json.dumps([value]),
        _text(draw, words),
        "",
    )
    return draw.choice(kinds)
