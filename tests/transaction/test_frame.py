"""Frames survive what login shells print, and never pass what was altered."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.transaction import frame
from fleetctl.transaction.wire import WireError

NONCE = "5" * 32
BLOB = b"\x00\xff bytes\n"
BLOBS = {hashlib.sha256(BLOB).hexdigest(): BLOB}


def packed() -> bytes:
    return frame.pack("response", NONCE, {"answer": ["ä", 1]}, BLOBS)


@given(before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_noise_around_a_frame_does_not_matter(before, after):
    message = frame.unpack("response", before + packed() + after, NONCE)

    assert message.header == {"answer": ["ä", 1]}
    assert message.blobs == BLOBS


def test_a_frame_of_another_request_is_noise():
    other = frame.pack("response", "6" * 32, {"answer": "not mine"}, {})

    assert frame.unpack("response", other + packed(), NONCE).header == {"answer": ["ä", 1]}


def test_a_frame_that_was_cut_anywhere_is_refused():
    whole = packed()

    for length in range(len(whole)):
        with pytest.raises(WireError):
            frame.unpack("response", whole[:length], NONCE)


def test_a_frame_with_any_byte_altered_is_refused():
    whole = packed()

    for place in range(1, len(whole)):
        altered = whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :]
        with pytest.raises(WireError):
            frame.unpack("response", altered, NONCE)


def test_another_version_is_told_apart_from_noise(monkeypatch):
    monkeypatch.setattr(frame, "SCHEMA", 999)
    newer = packed()
    monkeypatch.undo()

    with pytest.raises(WireError, match="version"):
        frame.unpack("response", newer, NONCE)


def test_a_blob_that_is_not_what_its_digest_says_is_refused():
    lying = frame.pack("response", NONCE, {}, {"0" * 64: b"other"})

    with pytest.raises(WireError, match="digest"):
        frame.unpack("response", lying, NONCE)
