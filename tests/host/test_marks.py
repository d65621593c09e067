"""Cutting a program's bytes out of a noisy stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.host.marks import NOISE_KEPT_BYTES, MarkedStream, Stage

MARK = b"abcd-efgh"
# Pieces of the mark itself are the hardest bytes to tell from the mark.
BYTES = st.lists(
    st.sampled_from([b"abcd", b"-", b"efgh", b"abcd-", b"abcd-efg", b"\n", b"x", b"\0"])
).map(b"".join)


def fed(stream: bytes, cuts: list[int]) -> MarkedStream:
    marked = MarkedStream(MARK)
    start = 0
    for cut in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
        marked.feed(stream[start:cut])
        start = cut
    return marked


@given(noise=BYTES, body=BYTES, after=BYTES, cuts=st.lists(st.integers(0, 10_000)))
def test_however_a_stream_is_cut_the_body_is_the_same(
    noise: bytes, body: bytes, after: bytes, cuts: list[int]
):
    noise, body = noise.replace(MARK, b""), body.replace(MARK, b"")
    stream = noise + MARK + b" hello\n" + MARK + b" 42\n" + body + MARK + b" 7 gone\n" + after
    if stream.count(MARK) > 3 + after.count(MARK) or body.endswith(b"abcd-efgh"[:-1]):
        return

    marked = fed(stream, cuts)

    assert (marked.stage, marked.body) == (Stage.ENDED, body)
    assert (marked.opening, marked.closing) == ((b"42",), (b"7", b"gone"))
    assert marked.noise == noise[-NOISE_KEPT_BYTES:]


def test_a_mark_without_its_line_end_is_not_yet_one():
    marked = fed(MARK + b" hello\n" + MARK + b" 42\nbody" + MARK + b" 7 go", [])

    assert marked.stage is Stage.BODY

    marked.feed(b"ne\n")

    assert (marked.stage, marked.body) == (Stage.ENDED, b"body")


def test_a_program_that_could_not_start_ends_a_stream_that_was_never_opened():
    marked = fed(MARK + b" hello\n" + MARK + b" 127 gone\n", [])

    assert marked.stage is Stage.ENDED
    assert (marked.opening, marked.closing) == ((), (b"127", b"gone"))


def test_endless_noise_is_forgotten_but_for_its_end():
    marked = MarkedStream(MARK)
    for number in range(10_000):
        marked.feed(b"%09d\n" % number)

    assert marked.size_bytes <= 4 * NOISE_KEPT_BYTES
    assert marked.noise.endswith(b"000009999\n")

    marked.feed(MARK + b" hello\n" + MARK + b" 42\nbody")

    assert marked.body == b"body"


def test_a_forgotten_body_still_shows_its_end():
    marked = fed(MARK + b" 42\n", [])
    for _ in range(1000):
        marked.feed(b"x" * 1000)
        marked.forget_body()

    assert marked.size_bytes < 2000

    marked.feed(MARK[:4])
    marked.forget_body()
    marked.feed(MARK[4:] + b" 143 gone\n")

    assert marked.closing == (b"143", b"gone")


def test_a_prompt_is_found_once_even_in_two_pieces():
    marked = fed(b"lecture\n[pro", [])
    assert not marked.take_noise_up_to(b"[prompt]")

    marked.feed(b"mpt]")

    assert marked.take_noise_up_to(b"[prompt]")
    assert not marked.take_noise_up_to(b"[prompt]")
