"""One word or sign over and over is no language; lines, tables, code and emphasis are."""

import pytest

from fleetctl.trial.classes import load_classes
from fleetctl.trial.garbage import garbage_flags

LIMITS = load_classes().garbage


def has_stutter(text):
    return "stutter" in garbage_flags(text, prompt="", limits=LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        "!" * 12,
        "! " * 20,
        "Let me look that up." + "!" * 16,
        "The code is " + "{" * 12,
        '" that that"" barn that that that that that that that comet that',
        " castle rock rock rock rock rock{ barn",
        "The the THE the the code",
        "None None None None None",
        "да, да, да, да, да",
        "@@@@@@@@@@@@@@@@",
    ],
)
def test_one_word_or_sign_over_and_over_is_a_stutter(text):
    assert has_stutter(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Yes!!!",
        "No, no, no, no: the order was sent.",
        "!" * 11,
        "The order is on its way. " * 2 + "Thank you very, very, very, very much for asking!",
        "| order | code |\n| -------------------- | -------------------- |\n| 1 | QX-5512-H |",
        "----------------\nThe tracking code is QX-5512-H.\n================",
        "Contents ........................ 3",
        "It costs 1000000000000000 in the old currency.",
        "________________",
        "`!!!!!!!!!!!!!!!!`",
        "```\nno no no no no no no\n```",
        "\u2500" * 30,
    ],
)
def test_rulers_tables_numbers_code_and_emphasis_are_none(text):
    assert not has_stutter(text)
