"""Flags are read as production reads them: truth words, warnings, no surprise."""

import pytest

from payload.flags import NAMES, Flags, read_flags


@pytest.mark.parametrize(
    ("word", "value"),
    [("1", True), ("true", True), ("YES", True), ("0", False), ("no", False), ("", None)],
)
def test_truth_words(word, value):
    flags, warnings = read_flags({"SGLANG_DSV4_GE_DIFF": word})

    assert flags.ge_diff is value
    assert warnings == ()


def test_a_bad_value_warns_and_leaves_the_default():
    flags, warnings = read_flags({"SGLANG_OPT_USE_MULTI_STREAM_OVERLAP": "maybe"})

    assert flags == Flags()
    assert len(warnings) == 1
    assert "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP='maybe'" in warnings[0]


def test_unknown_names_are_ignored():
    assert read_flags({"SGLANG_TYPO": "1"}) == (Flags(), ())


@pytest.mark.parametrize(("field", "name"), NAMES.items())
def test_each_flag_has_a_variable_of_its_own(field, name):
    flags, _ = read_flags({name: "1"})

    assert [key for key, value in vars(flags).items() if value is not None] == [field]
