"""Stored conversations of any server, read into session records.

What is understood, each also as one line of a JSONL file:

    a transcript line of fleetctl
    raw server-sent events                                          data: {"choices": …}
    a raw response                                                  {"choices": […]}
    a message history                                               {"messages": […], "tools": […]}
    one exchange with its request and the planted truth             {"request": {…}, "status": 200,
        "response": {…} or "sse": "data: …", "truth": {…}}
    several                                                         {"exchanges": […], "truth": {…}}

`truth` holds what is known, all of it optional: `tool` and `arguments` of the call that a single
round must make, or what its text `contains`, or `expects` with one such object per round; the
`values` that belong to the session, and `foreign` values that belong to others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from fleetctl.trial.reasons import Odd, in_words
from fleetctl.trial.sse import SseParser

_SSE_STARTS = ("data:", "event:", "id:", "retry:", ":")
_TRANSCRIPT_KINDS = {"trial", "end"}
_EXPECTATION_KEYS = ("tool", "arguments", "contains")
_KINDS = {str: "a text", int: "a whole number", dict: "an object", type(None): "null"}
_TRUTH_KEYS = {*_EXPECTATION_KEYS, "expects", "values", "foreign", "plant"}


@dataclass(frozen=True)
class Known:
    """What is known beside the file; it holds where the file itself says nothing.

    Attributes:
        request: the request body, as JSON text.
        truth: the right answers.
    """

    request: str = ""
    truth: Truth = field(default_factory=Truth)


def read_conversations(text: str, name: str, known: Known | None = None) -> Iterator[SessionRecord]:
    """Yield the sessions in a file's text, numbered in order where they have no number.

    What comes before a line that can't be understood is yielded before that is raised.

    Args:
        text: the file's content; undecodable bytes as surrogates (`surrogateescape`).
        name: what to call the file in messages.
        known: request and truth for what the file doesn't say.

    Raises:
        InputError: the text is none of the understood forms.
    """
    known = known or Known()
    if text.lstrip("\ufeff \t\r\n").startswith(_SSE_STARTS):
        yield _session(0, [_exchange({"sse": text}, 1, known)], known.truth)
        return
    found = 0
    for place, value in _values(text, name):
        try:
            record = _record(value, found, known)
            if record is not None:
                _check(record)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise _not_understood(place, in_words(error)) from error
        if record is not None:
            found += 1
            yield record
    if not found:
        raise _not_understood(name, "it holds no conversation")


def _values(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each JSON document of the text with its place: one, or one per line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # JSON may hold other line ends inside its strings, so only a line feed ends a line
        lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        for number, line in lines:
            try:
                yield f"{name}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _not_understood(f"{name}:{number}", in_words(error)) from error
        return
    is_history = isinstance(value, list) and any(
        isinstance(each, dict) and "role" in each for each in value
    )
    for each in value if isinstance(value, list) and not is_history else [value]:
        yield name, each


def _record(
    value: Any,  # noqa: ANN401 - any JSON may stand in a file
    index: int,
    known: Known,
) -> SessionRecord | None:
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict):
        raise Odd(f"an object or a list of messages is needed, not {json.dumps(value)[:40]}")
    if value.get("kind") in _TRANSCRIPT_KINDS:
        return None
    if value.get("kind") == "session":
        return from_json(value)
    truth = truth_from_json(value["truth"]) if value.get("truth") else known.truth
    if "exchanges" in value:
        exchanges = [_exchange(each, n, known) for n, each in enumerate(value["exchanges"], 1)]
    elif "choices" in value or "error" in value:
        exchanges = [_exchange({"response": value}, 1, known)]
    elif "messages" in value and not {"response", "sse"} & value.keys():
        exchanges = list(_history(value))
    else:
        exchanges = [_exchange(value, 1, known)]
    return _session(int(value.get("session", index)), exchanges, truth)


def _session(index: int, exchanges: list[Exchange], truth: Truth) -> SessionRecord:
    return SessionRecord(session=index, truth=truth, exchanges=tuple(exchanges))


def _exchange(value: dict[str, Any], number: int, known: Known) -> Exchange:
    pieces = {key: value[key] for key in ("messages", "tools") if key in value}
    request = value.get("request") or pieces or known.request
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


def truth_from_json(value: dict[str, Any]) -> Truth:
    """Return the truth that people write beside a conversation.

    Raises:
        ValueError, TypeError: it is no truth, or has a key that means nothing.
    """
    unknown = sorted(value.keys() - _TRUTH_KEYS)
    if unknown:
        raise Odd(f"`truth` has no `{unknown[0]}`; it has {', '.join(sorted(_TRUTH_KEYS))}")
    single = {key: value[key] for key in _EXPECTATION_KEYS if key in value}
    expects = value.get("expects") or ([single] if single else [])
    plant = value.get("plant")
    truth = Truth(
        expects=tuple(Expectation(**expectation) for expectation in expects),
        values=tuple(value.get("values") or ()),
        foreign=tuple(value.get("foreign") or ()),
        plant=Plant(**plant) if plant else None,
    )
    _check_truth(truth)
    return truth


def _check_truth(truth: Truth) -> None:
    for text in (*truth.values, *truth.foreign):
        _need("a planted value", text, str)
    for expectation in truth.expects:
        _need("`tool`", expectation.tool, str, type(None))
        _need("`arguments`", expectation.arguments, dict, type(None))
        _need("`contains`", expectation.contains, str, type(None))
    for name, number in vars(truth.plant).items() if truth.plant else ():
        _need(f"`plant.{name}`", number, int)


def _check(record: SessionRecord) -> None:
    """Refuse values that no classifier could judge.

    Raises:
        TypeError: one of the wrong kind; says which.
    """
    _check_truth(record.truth)
    for exchange in record.exchanges:
        for name in ("request", "body", "tail", "detail"):
            _need(f"`{name}`", getattr(exchange, name), str)
        _need("`status`", exchange.status, int, type(None))
        _need("`round`", exchange.round, int)
        for event in exchange.events:
            _need("an event", event.data, str)


def _need(what: str, found: object, *kinds: type) -> None:
    if not isinstance(found, kinds):
        spelled = " or ".join(_KINDS[kind] for kind in kinds)
        raise Odd(f"{what} must be {spelled}, not {json.dumps(found)[:40]}")


def _not_understood(place: str, why: str) -> InputError:
    return InputError(
        f"not a conversation: {place}",
        why=why,
        next_step="give raw SSE, a response, a message history or an exchange with its request "
        "(`fleetctl classify --help`)",
    )
