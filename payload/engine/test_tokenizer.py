"""Text survives the tokenizer, and special tokens come only from where they may."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.engine.tokenizer import (
    ASSISTANT,
    CALLS_OPEN,
    EOS,
    MARKUP,
    TextStream,
    standard_tokenizer,
)

TOKENIZER = standard_tokenizer()
TEXTS = st.text() | st.lists(st.sampled_from((*MARKUP, " order", "QX-5512-H", "雪", "\n"))).map(
    "".join
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.booleans())
def test_decoding_gives_back_what_was_encoded(text, markup):
    pieces = TOKENIZER.pieces(text, markup=markup)

    assert TOKENIZER.decode(piece.token for piece in pieces) == text


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_pieces_cover_the_text_in_order(text):
    pieces = TOKENIZER.pieces(text)

    ends = [0, *(piece.end for piece in pieces)]
    for piece, before in zip(pieces, ends, strict=False):
        assert piece.start in (before, before - 1), "the bytes of one character share its place"
    assert ends[-1] == len(text)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_a_stream_of_tokens_gives_the_same_text_and_no_half_characters(text):
    stream = TextStream(TOKENIZER)
    parts = [stream.push(piece.token) for piece in TOKENIZER.pieces(text, markup=True)]

    assert "".join((*parts, stream.finish())) == text
    assert not any("�" in part for part in parts if "�" not in text)


@pytest.mark.parametrize("mark", [*MARKUP, EOS, ASSISTANT])
def test_text_of_a_request_never_becomes_a_special_token(mark):
    special = {TOKENIZER.pieces(one, markup=True)[0].token for one in MARKUP}

    tokens = TOKENIZER.encode(f"before {mark} after")

    assert not special & set(tokens)
    assert not set(TOKENIZER.control.values()) & set(tokens)


def test_a_mark_is_one_token_of_a_reply():
    assert len(TOKENIZER.pieces(CALLS_OPEN, markup=True)) == 1


def test_common_words_are_one_token_with_their_space():
    assert len(TOKENIZER.encode("please look at the order")) == 5


def test_a_planted_value_has_the_same_tokens_wherever_it_stands():
    alone = TOKENIZER.encode("ZK-4417-Q")

    for before, after in ((" ", "."), ('": "', '"}'), ("order ", " now")):
        within = TOKENIZER.encode(f"{before}ZK-4417-Q{after}")
        start = len(TOKENIZER.encode(before))
        assert within[start : start + len(alone)] == alone


def test_control_tokens_write_nothing():
    assert TOKENIZER.decode(TOKENIZER.control.values()) == ""


def test_bytes_that_are_no_text_become_replacement_characters():
    assert TOKENIZER.decode([0xC3]) == "�"
