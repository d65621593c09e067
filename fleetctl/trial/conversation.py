"""Stored conversations of any server, read into session records.

What is understood, each also as one line of a JSONL file:

    a transcript line of fleetctl
    raw server-sent events                                          data: {"choices": …}
    a raw response                                                  {"choices": […]}
    a message history                                               {"messages": […], "tools": […]}
    one exchange with its request and the planted truth             {"request": {…}, "status": 200,
        "response": {…} or "sse": "data: …", "truth": {…}}
    several                                                         {"exchanges": […], "truth": {…}}

`truth` holds what is known: `tool` and `arguments`, or `contains`, for a single round, or
`expects` with one such object per round; `values` that belong to the session and `foreign` values
that belong to others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fleetctl.errors import InputError
from fleetctl.trial.events import (
    Ended,
    Exchange,
    Expectation,
    Plant,
    SessionRecord,
    SseEvent,
    Truth,
    from_json,
)
from fleetctl.trial.sse import SseParser

_SSE_STARTS = ("data:", "event:", "id:", "retry:", ":")
_TRANSCRIPT_KINDS = {"trial", "end"}


def read_conversations(text: str, name: str) -> list[SessionRecord]:
    """Return the sessions in a file's text, numbered in order where they have no number.

    Args:
        text: the file's content; undecodable bytes as surrogates (`surrogateescape`).
        name: what to call the file in messages.

    Raises:
        InputError: the text is none of the understood forms.
    """
    if text.lstrip("\ufeff \t\r\n").startswith(_SSE_STARTS):
        return [_session(0, [Exchange(round=1, request="", status=200, **_sse(text))], Truth())]
    records: list[SessionRecord] = []
    for place, value in _values(text, name):
        try:
            record = _record(value, len(records))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _not_understood(place, f"{type(error).__name__}: {error}") from error
        if record is not None:
            records.append(record)
    if not records:
        raise _not_understood(name, "it holds no conversation")
    return records


def _values(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each JSON document of the text with its place: one, or one per line."""
    try:
        value = json.loads(text)
    except ValueError:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        for number, line in lines:
            try:
                yield f"{name}:{number}", json.loads(line)
            except ValueError as error:
                raise _not_understood(f"{name}:{number}", str(error)) from error
        return
    is_history = isinstance(value, list) and any("role" in each for each in value)
    for each in value if isinstance(value, list) and not is_history else [value]:
        yield name, each


def _record(value: Any, index: int) -> SessionRecord | None:  # noqa: ANN401 - any JSON may stand in a file
    if isinstance(value, list):
        value = {"messages": value}
    if value.get("kind") in _TRANSCRIPT_KINDS:
        return None
    if value.get("kind") == "session":
        return from_json(value)
    truth = _truth(value.get("truth") or {})
    if "exchanges" in value:
        exchanges = [_exchange(each, n) for n, each in enumerate(value["exchanges"], 1)]
    elif "messages" in value:
        exchanges = list(_history(value))
    elif "choices" in value or "error" in value:
        exchanges = [Exchange(round=1, request="", status=200, body=json.dumps(value))]
    else:
        exchanges = [_exchange(value, 1)]
    return _session(int(value.get("session", index)), exchanges, truth)


def _session(index: int, exchanges: list[Exchange], truth: Truth) -> SessionRecord:
    return SessionRecord(session=index, truth=truth, exchanges=tuple(exchanges))


def _exchange(value: dict[str, Any], number: int) -> Exchange:
    request = value.get("request") or ""
    fields: dict[str, Any] = {
        "round": number,
        "request": request if isinstance(request, str) else json.dumps(request),
        "status": value.get("status", 200),
        "ended": Ended(value.get("ended", "complete")),
        "detail": str(value.get("detail", "")),
    }
    if "sse" in value:
        fields |= _sse(value["sse"])
    else:
        response = value["response"]
        fields["body"] = response if isinstance(response, str) else json.dumps(response)
    return Exchange(**fields)


def _sse(text: str) -> dict[str, Any]:
    parser = SseParser()
    events = parser.feed(text.encode("utf-8", "surrogateescape"))
    late, tail = parser.finish()
    return {
        "events": tuple(
            SseEvent(0.0, data.decode("utf-8", "surrogateescape")) for data in (*events, *late)
        ),
        "tail": tail.decode("utf-8", "surrogateescape"),
    }


def _history(value: dict[str, Any]) -> Iterator[Exchange]:
    """Yield one exchange per assistant message: what came before it is its request."""
    number = 0
    for place, message in enumerate(value["messages"]):
        if message["role"] != "assistant":
            continue
        number += 1
        request = {"messages": value["messages"][:place], "tools": value.get("tools") or []}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        body = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        yield Exchange(round=number, request=json.dumps(request), status=200, body=json.dumps(body))


def _truth(value: dict[str, Any]) -> Truth:
    single = {key: value[key] for key in ("tool", "arguments", "contains") if key in value}
    expects = value.get("expects") or ([single] if single else [])
    plant = value.get("plant")
    return Truth(
        expects=tuple(Expectation(**expectation) for expectation in expects),
        values=tuple(value.get("values") or ()),
        foreign=tuple(value.get("foreign") or ()),
        plant=Plant(**plant) if plant else None,
    )


def _not_understood(place: str, why: str) -> InputError:
    return InputError(
        f"not a conversation: {place}",
        why=why,
        next_step="give raw SSE, a response, a message history or an exchange with its request "
        "(`fleetctl classify --help`)",
    )
