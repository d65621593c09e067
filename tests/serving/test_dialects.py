"""What the client makes of a response whose first bytes come in any portion and under any type."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from fleetctl.serving.client import ByteBudget, _Reading
from fleetctl.trial.events import Ended, Exchange, SessionRecord, SseEvent, Truth
from fleetctl.trial.outcome import classify
from fleetctl.trial.workload import Limits
from tests.trial.test_dialects import EXPECTED, parsed, stream

STREAM, JSON, PLAIN = "text/event-stream; charset=utf-8", "application/json", "text/plain"
ERROR = json.dumps({"object": "error", "message": "overloaded", "code": 503}).encode()


def read(*pieces: bytes, content_type: str, status: int = 200) -> _Reading:
    reading = _Reading(Limits(), ByteBudget(), lambda: 0.0, is_stream=True)
    reading.take_head(SimpleNamespace(status=status, headers={"Content-Type": content_type}))
    for piece in pieces:
        reading.take(piece)
    reading.finish(Ended.COMPLETE)
    return reading


def outcome_of(reading: _Reading) -> str:
    events = tuple(SseEvent(0.0, event.data) for event in reading.events)
    body = b"".join(reading.body).decode()
    exchange = Exchange(round=1, request="{}", status=reading.status, events=events, body=body)
    return str(classify(SessionRecord(0, Truth(), (exchange,))).outcome)


@pytest.mark.parametrize("content_type", [STREAM, PLAIN, ""])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_stream_is_read_as_one_wherever_its_first_bytes_are_cut(name, content_type):
    text = stream(name)
    events = [event.decode() for event in parsed(text)[0]]

    for cut in range(16):
        found = read(text[:cut], text[cut:], content_type=content_type)
        assert [event.data for event in found.events] == events
        assert found.body == []
    single = read(*(text[at : at + 1] for at in range(len(text))), content_type=content_type)
    assert [event.data for event in single.events] == events


@pytest.mark.parametrize("content_type", [STREAM, JSON, PLAIN, ""])
@pytest.mark.parametrize("lead", [b"", b"\n", b"\xef\xbb\xbf  "])
def test_an_error_under_status_200_is_read_whatever_it_calls_itself(lead, content_type):
    for cut in range(len(lead) + 8):
        text = lead + ERROR
        found = read(text[:cut], text[cut:], content_type=content_type)
        assert found.events == []
        assert outcome_of(found) == "infra"


@pytest.mark.parametrize("text", [b"", b" \n", b"da", b"<html>busy</html>", b"retry"])
def test_what_never_becomes_a_stream_is_kept_as_a_body(text):
    found = read(*(text[at : at + 1] for at in range(len(text))), content_type=PLAIN)

    assert b"".join(found.body) == text
    assert found.events == []


def test_a_failed_status_is_no_stream_unless_it_says_so():
    assert read(b"data: x\n\n", content_type=PLAIN, status=502).events == []
    assert len(read(b"data: x\n\n", content_type=STREAM, status=502).events) == 1
