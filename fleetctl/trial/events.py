"""The history of a session as data: what was sent, what came back and when.

A record holds the raw bytes of both directions, so that every later judgement can be made again
offline. Bytes that aren't UTF-8 are kept as lone surrogates (`surrogateescape`), which JSON
carries as escapes: nothing is lost in the round trip.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Any

RECORD_SCHEMA = 1


class Ended(enum.StrEnum):
    """How an exchange ended, seen from the client's socket.

    Attributes:
        COMPLETE: the response was read to its end.
        CONNECT_FAILED: no connection: refused, DNS, TLS, or the connect limit passed.
        CUT: the connection broke before the response's end.
        TTFT: no token within the first-token limit.
        STALL: the stream stood still for longer than the stall limit.
        TOTAL: the round took longer than the total limit.
        TOO_LARGE: more bytes than a session may hold; reading was stopped.
        ABORTED: this client gave up: interrupted, or its own disk was full.
    """

    COMPLETE = "complete"
    CONNECT_FAILED = "connect_failed"
    CUT = "cut"
    TTFT = "ttft"
    STALL = "stall"
    TOTAL = "total"
    TOO_LARGE = "too_large"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One server-sent event.

    Attributes:
        at_s: when it had arrived, in seconds since its request was sent.
        data: its data lines, joined by line feeds.
    """

    at_s: float
    data: str


@dataclass(frozen=True)
class Exchange:
    """One request and everything that came back.

    Attributes:
        round: 1 for the first request of the session.
        request: the exact body sent.
        intended_at_s: when the request was due, in seconds since the start barrier.
        sent_at_s: when it was sent, in seconds since the start barrier.
        finished_at_s: when the last byte was read or the exchange was given up, in seconds since
            it was sent.
        ended: how it ended.
        status: the HTTP status, or None when there was no response.
        headers: response headers in order, names in lower case.
        events: the events of a streamed response.
        body: the body of a response that was not a stream.
        tail: bytes after the last whole event of a stream.
        first_token_at_s: when the first token had arrived, in seconds since the request was sent.
        received_bytes: size of the response body as read.
        detail: the client's error message, where there was one.
    """

    round: int
    request: str
    intended_at_s: float = 0.0
    sent_at_s: float = 0.0
    finished_at_s: float = 0.0
    ended: Ended = Ended.COMPLETE
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    events: tuple[SseEvent, ...] = ()
    body: str = ""
    tail: str = ""
    first_token_at_s: float | None = None
    received_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Expectation:
    """What one round's reply must be.

    Attributes:
        tool: name of the tool that must be called, or None where a text is asked for.
        arguments: the exact arguments of that call; None where any valid ones will do.
        contains: what the text must contain; None where any text will do.
    """

    tool: str | None = None
    arguments: dict[str, Any] | None = None
    contains: str | None = None


@dataclass(frozen=True)
class Plant:
    """Whose planted values can turn up in this session: enough to trace any value to its owner.

    Attributes:
        root_seed: seed of the experiment.
        run_index: the run this session belongs to; earlier runs are searched, too.
        sessions: number of sessions per run.
        slots: number of values per session.
    """

    root_seed: int
    run_index: int
    sessions: int
    slots: int


@dataclass(frozen=True)
class Truth:
    """What is known about a session's right answers.

    Attributes:
        expects: one entry per round; rounds beyond it are judged without expectation.
        values: planted values that belong to this session.
        foreign: values known to belong to other sessions.
        plant: how to trace a value to its owner, where the values were planted by fleetctl.
    """

    expects: tuple[Expectation, ...] = ()
    values: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    plant: Plant | None = None


@dataclass(frozen=True)
class SessionRecord:
    """One session from its first request to its last byte.

    Attributes:
        session: index of the session in its run.
        truth: what its answers should have been.
        exchanges: its requests in order.
        labels: what the session belongs to, such as experiment, arm and host.
    """

    session: int
    truth: Truth
    exchanges: tuple[Exchange, ...]
    labels: dict[str, str] = field(default_factory=dict)


def to_json(record: SessionRecord) -> dict[str, Any]:
    """Return the record as plain JSON values."""
    truth = record.truth
    return {
        "kind": "session",
        "schema": RECORD_SCHEMA,
        "session": record.session,
        "labels": record.labels,
        "truth": {
            "expects": [vars(expectation) for expectation in truth.expects],
            "values": list(truth.values),
            "foreign": list(truth.foreign),
            "plant": vars(truth.plant) if truth.plant else None,
        },
        "exchanges": [_exchange_to_json(exchange) for exchange in record.exchanges],
    }


def from_json(value: dict[str, Any]) -> SessionRecord:
    """Return the record that `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: the value is not such a record.
    """
    truth = value["truth"]
    return SessionRecord(
        session=int(value["session"]),
        labels=dict(value["labels"]),
        truth=Truth(
            expects=tuple(Expectation(**expectation) for expectation in truth["expects"]),
            values=tuple(truth["values"]),
            foreign=tuple(truth["foreign"]),
            plant=Plant(**truth["plant"]) if truth["plant"] else None,
        ),
        exchanges=tuple(_exchange_from_json(exchange) for exchange in value["exchanges"]),
    )


def request_of(exchange: Exchange) -> dict[str, Any]:
    """Return the request body as JSON, or an empty object when it isn't one."""
    try:
        body = json.loads(exchange.request)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _exchange_to_json(exchange: Exchange) -> dict[str, Any]:
    value = dict(vars(exchange))
    value["headers"] = [list(pair) for pair in exchange.headers]
    value["events"] = [[round(event.at_s, 6), event.data] for event in exchange.events]
    return value


def _exchange_from_json(value: dict[str, Any]) -> Exchange:
    fields = dict(value)
    fields["ended"] = Ended(value["ended"])
    fields["headers"] = tuple((name, text) for name, text in value["headers"])
    fields["events"] = tuple(SseEvent(at_s, data) for at_s, data in value["events"])
    return Exchange(**fields)
