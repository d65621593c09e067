"""A record survives the round trip through JSON with every byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.events import (
    Ended,
    Exchange,
    Expectation,
    Plant,
    SessionRecord,
    SseEvent,
    Truth,
    from_json,
    request_of,
    to_json,
)

raw = st.binary(max_size=40).map(lambda data: data.decode("utf-8", "surrogateescape"))
moments = st.floats(0, 1000).map(lambda value: round(value, 6))
exchanges = st.builds(
    Exchange,
    round=st.integers(1, 9),
    request=raw,
    sent_at_s=moments,
    ended=st.sampled_from(Ended),
    status=st.none() | st.integers(100, 599),
    headers=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2).map(tuple),
    events=st.lists(st.builds(SseEvent, moments, raw), max_size=3).map(tuple),
    body=raw,
    tail=raw,
    first_token_at_s=st.none() | moments,
)
truths = st.builds(
    Truth,
    expects=st.lists(
        st.builds(Expectation, st.text(max_size=3), st.just({"a": 1}), st.none()), max_size=2
    ).map(tuple),
    values=st.just(("ZK-4417-Q",)),
    plant=st.none() | st.just(Plant(1, 2, 3, 4)),
)


@given(
    st.builds(SessionRecord, st.integers(0, 99), truths, st.lists(exchanges, max_size=2).map(tuple))
)
def test_a_record_survives_json(record):
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


def test_bytes_that_are_no_utf8_come_back():
    data = b"\xff\xfe\xed\xa0\x80"
    event = SseEvent(0.0, data.decode("utf-8", "surrogateescape"))
    record = SessionRecord(0, Truth(), (Exchange(1, "", events=(event,)),))
    again = from_json(json.loads(json.dumps(to_json(record))))
    assert again.exchanges[0].events[0].data.encode("utf-8", "surrogateescape") == data


@pytest.mark.parametrize("request_text", ["", "[1]", "null", "{broken"])
def test_a_request_that_is_no_object_is_an_empty_one(request_text):
    assert request_of(Exchange(1, request_text)) == {}


@pytest.mark.parametrize("value", [{}, {"session": 0}, {"session": 0, "truth": None}])
def test_what_is_no_record_is_refused(value):
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_json(value)
