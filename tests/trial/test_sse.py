"""Events are the same however the network cuts the bytes."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.sse import SseParser


def parse(*chunks: bytes) -> tuple[list[bytes], bytes]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    late, tail = parser.finish()
    return events + late, tail


PLAIN = b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n'
STREAMS = {
    "lf": PLAIN,
    "crlf": PLAIN.replace(b"\n", b"\r\n"),
    "cr": PLAIN.replace(b"\n", b"\r"),
    "no space after the colon": PLAIN.replace(b"data: ", b"data:"),
    "comments": b": hello\n\n" + PLAIN.replace(b"data: {", b": ping\ndata: {"),
    "names, ids and retries": PLAIN.replace(
        b"data: {", b"event: message\nid: 7\nretry: 1\ndata: {"
    ),
    "a byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "no last blank line": PLAIN[:-2],
    "no last blank line, one line end": PLAIN[:-1],
    "many blank lines": PLAIN.replace(b"\n\n", b"\n\n\n\n"),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_every_spelling_and_every_cut_gives_the_same_events(stream):
    wanted = ([b'{"a":1}', b'{"b":2}', b"[DONE]"], b"")
    assert parse(stream) == wanted
    for cut in range(len(stream) + 1):
        assert parse(stream[:cut], stream[cut:]) == wanted
    assert parse(*(bytes([byte]) for byte in stream)) == wanted


def test_data_lines_of_one_event_are_joined():
    assert parse(b"data: a\ndata\ndata: b\n\n") == ([b"a\n\nb"], b"")


def test_an_event_of_two_lines_is_one_event_wherever_its_line_ends_are_cut():
    for line_end in (b"\n", b"\r\n", b"\r"):
        stream = line_end.join((b"data: a", b"data: b", b"", b""))
        for cut in range(len(stream) + 1):
            assert parse(stream[:cut], stream[cut:]) == ([b"a\nb"], b"")


def test_utf8_cut_inside_a_character_comes_out_whole():
    stream = 'data: {"t":"\uff5c\u2581\u00e9"}\n\n'.encode()
    for cut in range(len(stream)):
        (event,), _ = parse(stream[:cut], stream[cut:])
        assert json.loads(event) == {"t": "\uff5c\u2581\u00e9"}


def test_a_torn_event_is_no_event_and_its_bytes_are_kept():
    assert parse(b'data: {"a":1}\n\ndata: {"b":') == ([b'{"a":1}'], b'data: {"b":')
    assert parse(b'data: {"a":\n') == ([], b'data: {"a":')


def test_a_huge_line_is_pending_until_it_ends():
    parser = SseParser()
    for _ in range(64):
        assert parser.feed(b"x" * 2**16) == []
    assert parser.pending_bytes == 2**22


texts = st.text(alphabet=st.sampled_from("abc:\r\n \uff5c\u00e9"), max_size=30)


@given(st.lists(st.one_of(texts.map(lambda t: f"data: {t}"), texts), max_size=8), st.data())
def test_any_stream_is_parsed_alike_however_it_is_cut(lines, data):
    stream = "\n".join(lines).encode()
    whole = parse(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert parse(*pieces) == whole
