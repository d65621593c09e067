"""Loops, broken characters and foreign scripts are garbage; tables, lists and names are not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.filler import filler_text
from fleetctl.trial.garbage import GarbageLimits, garbage_flags, script_of

LIMITS = GarbageLimits()
SENTENCE = filler_text(20, 7) + ". "


def flags(text: str, prompt: str = "Please look up the order.") -> set[str]:
    return set(garbage_flags(text, prompt=prompt, limits=LIMITS))


def test_a_loop_of_twenty_words_counts_from_the_fifth_time():
    assert "ngram_loop" not in flags(SENTENCE * 4)
    assert "ngram_loop" in flags(SENTENCE * 5)


def test_a_loop_is_found_after_a_long_sound_beginning():
    assert "ngram_loop" in flags(filler_text(800, 1) + " " + SENTENCE * 6)


def test_short_periods_are_loops_and_compress_well():
    assert flags("no " * 200) == {"ngram_loop", "compressible", "stutter"}
    assert "compressible" not in flags("no " * 100)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "| order | status |\n|-------|--------|\n"
        + "".join(f"| {n} | sent |\n" for n in range(30)),
        "-" * 90,
        "\n".join(f"{n}. Check parcel {n * 7919}." for n in range(60)),
        "Café naïve résumé — 20 € “quoted” … ✓ 🙂",
        "Tab\tand\r\nnew line",
        "The parcel goes to Łódź, Αθήνα.",
        filler_text(600, 3),
    ],
)
def test_ordinary_text_is_no_garbage(text):
    assert flags(text) == set()


@pytest.mark.parametrize("char", [chr(0xFFFD), chr(0xD800), chr(0xDC80)])
def test_replacement_characters_and_lone_surrogates_are_garbage(char):
    assert flags(f"The order{char} is sent") == {"replacement_chars"}


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\x85", "\ue000", "\uffff"])
def test_control_private_and_unassigned_characters_are_garbage(char):
    assert flags(f"The order{char} is sent") == {"control_bytes"}


def test_what_the_prompt_contains_is_no_sign():
    odd = "\ufffd\x00 订单已经发货了吗好的谢谢"
    assert flags(odd, prompt=odd) == set()


def test_a_script_out_of_nowhere_is_a_switch_but_a_name_is_not():
    assert flags("The order 订单已经发货了吗好的谢谢 ok") == {"script_switch"}
    assert flags("Mr 王小明 has ordered four lamps and a table for his house in the city.") == set()
    assert flags("订单已经发货了吗好的谢谢", prompt="请查一下订单") == set()


def test_many_scripts_in_one_text_are_a_salad():
    assert "script_salad" in flags(
        "a \u8ba2 \u0431 \u0627 \u05d4 \u0e2a b c d e f g h i j k l m n o p q r s t u v w x y z"
    )


def test_scripts_are_named():
    assert [script_of(char) for char in "a\u00e9\u8ba2\u0431\u03a91 \uff71"] == [
        "LATIN", "LATIN", "CJK", "CYRILLIC", "GREEK", "", "", "HALFWIDTH"
    ]  # fmt: skip


@given(st.integers(0, 10_000), st.integers(1, 900))
def test_seeded_prose_of_any_length_is_no_garbage(seed, words):
    assert flags(filler_text(words, seed)) == set()


def test_random_words_with_numbers_are_no_loop():
    draw = random.Random(1)
    text = " ".join(f"{draw.randrange(10**6)}" for _ in range(2000))
    assert flags(text) == set()


def test_a_huge_text_is_judged_by_its_beginning():
    assert "ngram_loop" in flags(SENTENCE * 100_000)
