"""Values survive the wire; what is not ours is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.transaction import image, journal, lease, outcome, snapshot, step, wire
from fleetctl.transaction.wire import WireError

SHA = st.text("0123456789abcdef", min_size=64, max_size=64)
PATHS = st.from_regex(r"/[^/\0.][^/\0]{0,10}", fullmatch=True)
TEXT = st.text(max_size=20)
IMAGES = st.builds(image.FileImage, SHA, st.integers(0), st.integers(0, 0o7777))
IMAGES = st.builds(
    image.FileImage,
    SHA,
    st.integers(0),
    st.integers(0, 0o7777),
    st.integers(0),
    st.integers(0),
    st.integers(),
    st.lists(st.tuples(TEXT, TEXT)).map(tuple),
)
VALUES = st.one_of(
    st.builds(
        step.WriteFile,
        path=PATHS,
        content_sha256=SHA,
        mode=st.none() | st.integers(0, 0o7777),
        expect=SHA | st.just(image.ABSENT),
        bytecode_prefix=st.none() | TEXT,
    ),
    st.builds(step.RemoveFile, path=PATHS, expect=SHA),
    IMAGES,
    st.builds(image.FileBefore, TEXT, TEXT, IMAGES | st.just(image.ABSENT), TEXT, st.integers(0)),
    st.builds(journal.Reverting, st.floats(allow_nan=False), TEXT),
    st.builds(journal.Applied, st.floats(allow_nan=False)),
    st.builds(outcome.StagedFile, PATHS, st.binary(max_size=40)),
    st.builds(snapshot.UnitState, TEXT, st.dictionaries(TEXT, TEXT), problem=TEXT),
    st.lists(st.integers() | TEXT | st.none() | st.booleans()).map(tuple),
)


@given(VALUES)
def test_whatever_is_sent_arrives_equal(value):
    blobs: dict[str, bytes] = {}
    text = json.dumps(wire.encode(value, blobs))

    assert wire.decode(json.loads(text), blobs) == value


def test_every_class_that_travels_has_a_name_of_its_own():
    modules = (image, journal, lease, outcome, snapshot, step)
    defined = [
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
        if kind.__module__ == module.__name__
    ]

    assert set(defined) <= set(wire.NAMES)
    assert len(set(wire.NAMES.values())) == len(wire.NAMES)


def test_same_bytes_travel_once():
    blobs: dict[str, bytes] = {}
    files = [outcome.StagedFile(f"/{name}", b"same") for name in "abc"]

    wire.encode(files, blobs)

    assert list(blobs.values()) == [b"same"]


@pytest.mark.parametrize(
    "data",
    [
        {"@": "os.system", "command": "id"},
        {"@": "WriteFile", "path": "/a"},
        {"@": "WriteFile", "path": "../a", "content_sha256": "0" * 64, "mode": None, "expect": ""},
        {"@": "Absent", "extra": 1},
        {"blob": "0" * 64},
        {"@": "journal.Done"},
    ],
)
def test_what_is_no_value_of_ours_is_refused(data):
    with pytest.raises(WireError):
        wire.decode(data, {})


def test_a_value_of_the_expected_kind_is_returned():
    assert wire.decode_as(image.Absent, wire.encode(image.ABSENT, {}), {}) == image.ABSENT


def test_a_value_of_another_kind_is_refused():
    data = wire.encode(image.ABSENT, {})

    with pytest.raises(WireError, match="expected Lease"):
        wire.decode_as(lease.Lease, data, {})


def test_what_has_no_form_on_the_wire_is_refused():
    with pytest.raises(WireError, match="set"):
        wire.encode({1, 2}, {})
