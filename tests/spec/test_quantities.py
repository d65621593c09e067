"""Amounts that no run could use are refused where they are written, and not hours later."""

from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.loader import load_bisect, load_experiment, load_matrix, load_minimize

HEAD = '[experiment]\nname = "e"\ntarget = "t"\n'
REACH = '[workload]\nkind = "toolcall"\nsessions = {}\nmin_batch = {}\n'
LAYER = '[ready.port]\ndeadline = "{}"\npoll = "{}"\n'
TWO = '[[change]]\nname = "a"\nenv = { A = "1" }\n[[change]]\nname = "b"\nenv = { B = "1" }\n'
FACTOR = """[matrix]
baseline = { load = "few" }
[[factor]]
name = "load"
[[factor.level]]
name = "few"
[[factor.level]]
name = "many"
workload = { sessions = 4 }
"""


def refusal(tmp_path: Path, text: str, load=load_experiment) -> str:
    path = tmp_path / "spec.toml"
    path.write_text(HEAD + text)
    with pytest.raises(InputError) as caught:
        load(path)
    return caught.value.why


@pytest.mark.parametrize("key", ["target", "alpha", "margin"])
@pytest.mark.parametrize("value", ["0", "1", '"0%"', '"100%"', "0.0", "nan"])
def test_a_bound_of_the_verdict_lies_between_none_and_all(tmp_path, key, value):
    why = refusal(tmp_path, f"[verdict]\n{key} = {value}\n")
    assert f"spec.toml:5: `verdict.{key}`" in why


@pytest.mark.parametrize("poll", ["0s", "0ms", "0.0h"])
def test_nobody_asks_without_a_pause(tmp_path, poll):
    assert "a pause between two questions" in refusal(tmp_path, LAYER.format("5s", poll))


@pytest.mark.parametrize("deadline", ["9000h", "9" * 400 + "s"])
def test_a_duration_of_years_is_a_mistake(tmp_path, deadline):
    assert "more than a year" in refusal(tmp_path, LAYER.format(deadline, "1s"))


def test_a_batch_that_the_sessions_can_not_make_is_refused_and_one_of_all_of_them_is_not(tmp_path):
    assert "never make such a batch" in refusal(tmp_path, REACH.format(8, 9))
    path = tmp_path / "spec.toml"
    path.write_text(HEAD + REACH.format(8, 8))
    assert load_experiment(path).workload.min_batch == 8


def test_a_cell_whose_sessions_can_not_make_the_batch_is_refused(tmp_path):
    text = FACTOR + REACH.format(40, 5)
    assert "4 sessions never make such a batch" in refusal(tmp_path, text, load_matrix)


@pytest.mark.parametrize(
    ("table", "load"),
    [("bisect", load_bisect), ("minimize", load_minimize)],
    ids=["bisect", "minimize"],
)
@pytest.mark.parametrize(
    "body",
    [
        "smallest_effect = 1",
        'smallest_effect = "95%"',
        'good_rate = "97%"',
        'bad_rate = "3%"',
        'good_rate = "10%"\nbad_rate = "10%"\nsmallest_effect = 0',
    ],
)
def test_rates_that_can_not_lie_apart_are_refused_before_the_search(tmp_path, table, load, body):
    assert "smallest_effect" in refusal(tmp_path, f"[{table}]\n{body}\n{TWO}", load)


def test_a_byte_order_mark_is_named_and_a_number_of_thousands_of_digits_ends_no_check(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    with pytest.raises(InputError) as caught:
        load_experiment(path)
    assert "byte order mark" in caught.value.why
    assert "thousands of digits" in refusal(tmp_path, "[trials]\nseed = " + "9" * 5000 + "\n")
