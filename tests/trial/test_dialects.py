"""Streams as the servers we know send them: each adds up to the same message at every cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.trial.events import Exchange, SessionRecord, SseEvent, Truth
from fleetctl.trial.outcome import classify
from fleetctl.trial.reply import assemble
from fleetctl.trial.sse import SseParser

GOLDEN = Path(__file__).parent.parent / "golden" / "dialects"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text("utf-8"))


def stream(name: str) -> bytes:
    return (GOLDEN / f"{name}.sse").read_bytes()


def parsed(*pieces: bytes) -> tuple[list[bytes], bytes]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    late, tail = parser.finish()
    return [*events, *late], tail


def recorded(name: str) -> Exchange:
    events, tail = parsed(stream(name))
    told = tuple(SseEvent(0.0, event.decode()) for event in events)
    return Exchange(round=1, request="{}", status=200, events=told, tail=tail.decode())


def test_every_stream_has_its_expectation():
    assert sorted(EXPECTED) == sorted(file.stem for file in GOLDEN.glob("*.sse"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_dialect_adds_up_to_its_message(name):
    expected = EXPECTED[name]

    reply = assemble(recorded(name))

    assert reply.content == expected.get("content", "")
    assert reply.reasoning == expected.get("reasoning", "")
    assert [{"name": c.name, "arguments": c.arguments} for c in reply.calls] == expected.get(
        "calls", []
    )
    assert reply.finish_reason == expected.get("finish_reason")
    usage = (
        reply.usage.prompt_tokens,
        reply.usage.completion_tokens,
        reply.usage.cached_tokens,
    )
    assert usage == tuple(expected.get("usage", (None,) * 3))
    assert (reply.server_error and reply.server_error[0]) == expected.get("server_error")
    assert reply.malformed == 0


@pytest.mark.parametrize("name", EXPECTED)
def test_a_dialect_has_its_outcome(name):
    outcome = classify(SessionRecord(0, Truth(), (recorded(name),)))

    assert outcome.outcome == EXPECTED[name]["outcome"]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_dialect_is_the_same_however_it_is_cut(name):
    text = stream(name)
    whole = parsed(text)

    for cut in range(len(text) + 1):
        assert parsed(text[:cut], text[cut:]) == whole
    assert parsed(*(text[at : at + 1] for at in range(len(text)))) == whole
