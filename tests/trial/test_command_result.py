"""What a user's program reports becomes a result, or a named fault; never a clean nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.command_result import command_result
from fleetctl.trial.summary import CommandRun, result_from_json, result_to_json

RUN = CommandRun(
    ("prog",), 0, is_timed_out=False, reported_by="", stdout_tail="", stderr_tail="", wall_s=1.0
)
LINE = "CORRUPTION sessions: 2/40 = 5%  (leak=2 no_tool=0 error=0 ok-ish[done/maxrounds]=38)"


def result(stdout: str = "", result_file: str | None = None, **run: object):
    return command_result(replace(RUN, **run), stdout=stdout, result_file=result_file)


def counts(found) -> dict[str, int]:
    return {str(outcome): count for outcome, count in found.counts if count}


def test_the_peoples_line_is_enough():
    found = result(f"starting\n{LINE}\nbye\n")
    assert (found.sessions, found.counted, found.corrupted) == (40, 40, 2)
    assert counts(found) == {"leak": 2, "done": 38}
    assert found.is_valid
    assert found.command.reported_by == "line"
    assert found.line() == LINE


@pytest.mark.parametrize(
    ("line", "numbers", "classes"),
    [
        ("CORRUPTION sessions: 3/40", (40, 40, 3), {"leak": 3, "done": 37}),
        ("CORRUPTION sessions: 0/40 = 0%", (40, 40, 0), {"done": 40}),
        (
            "CORRUPTION sessions: 3/40 = 7.5%  (leak=2 no_tool=1 error=0 ok-ish=37)",
            (40, 40, 3),
            {"leak": 2, "no_tool": 1, "done": 37},
        ),
        (
            "CORRUPTION sessions: 1/4 = 25%  (leak=1 ok-ish=3)  infra=2 (not counted)",
            (6, 4, 1),
            {"infra": 2, "leak": 1, "done": 3},
        ),
    ],
)
def test_lines_of_other_hands_are_read_as_they_mean(line, numbers, classes):
    found = result(line)
    assert (found.sessions, found.counted, found.corrupted) == numbers
    assert counts(found) == classes


@pytest.mark.parametrize("where", ["file", "stdout"])
def test_the_documented_json_is_read_from_the_file_or_the_last_line(where):
    text = json.dumps(
        {
            "sessions": 10,
            "counts": {"leak": 1, "cross_talk": 1, "infra": 2, "done": 6},
            "exposure": {"rounds": 24, "completion_tokens": 900},
        }
    )
    found = result("noise", text) if where == "file" else result(f"noise\n{text}\n\n")
    assert (found.sessions, found.counted, found.corrupted) == (10, 8, 2)
    assert found.exposure.rounds == 24
    assert found.command.reported_by == "json"
    assert found.is_valid


def test_a_program_may_say_what_it_calls_corrupt_and_why_its_run_is_void():
    text = json.dumps(
        {
            "sessions": 4,
            "counts": {"no_tool": 2, "done": 2},
            "corrupted": 2,
            "invalid_because": ["the server restarted"],
        }
    )
    found = result("", text)
    assert found.corrupted == 2
    assert found.invalid_because == ("the server restarted",)


def test_the_tools_own_result_is_such_a_json():
    first = result("", json.dumps({"sessions": 2, "counts": {"leak": 1, "done": 1}}))
    again = result("", json.dumps(result_to_json(first)))
    assert (again.sessions, again.counts, again.corrupted) == (2, first.counts, 1)
    assert result_from_json(json.loads(json.dumps(result_to_json(first)))) == first


@pytest.mark.parametrize(
    ("stdout", "said"),
    [
        ("", "reported nothing"),
        ("all fine!", "reported nothing"),
        ("{not json", "can't be used"),
        ('{"sessions": 4}', "can't be used"),
        ('{"sessions": 4, "counts": {"odd": 4}}', "can't be used"),
        ('{"sessions": 4, "counts": {"done": 3}}', "don't add up"),
        ('{"sessions": 4, "counts": {"done": 5, "leak": -1}}', "don't add up"),
        ('{"sessions": 4, "counts": {"done": 4}, "corrupted": 5}', "don't add up"),
        ('{"sessions": 4, "counts": {"done": 4}, "exposure": {"speed": 1}}', "can't be used"),
        ('{"sessions": 4, "counts": {"leak": 2, "done": 2}, "corrupted": 1}', "2 to 2 can be"),
        ('{"sessions": 4, "counts": {"error": 1, "done": 3}, "corrupted": 2}', "0 to 1 can be"),
        ("CORRUPTION sessions: 2/40 (leak=3 ok-ish=37)", "3 to 3 can be"),
        ("CORRUPTION sessions: 2/40 (leak=2 ok-ish=37)", "don't add up"),
        ("CORRUPTION sessions: 50/40", "don't add up"),
        ("CORRUPTION sessions: 2/40 (leek=2 ok-ish=38)", "unknown class"),
    ],
)
def test_a_report_that_can_not_be_trusted_is_void_and_counts_nothing(stdout, said):
    found = result(stdout)
    assert (found.sessions, found.counted) == (0, 0)
    assert said in " ".join(found.invalid_because)


GOOD = {"sessions": 4, "counts": {"leak": 1, "done": 3}}


@pytest.mark.parametrize(
    "odd",
    [
        *({"sessions": value} for value in (4.9, "4", True, float("inf"), float("nan"), None, [])),
        *({"counts": {"leak": value, "done": 3}} for value in (1.5, "1", True, None, {})),
        *({"corrupted": value} for value in (1.5, "1", True, float("nan"), [1])),
        *({"invalid_because": value} for value in ({"disk": "full"}, 7, True, [1], [None])),
        *({"exposure": {"wall_s": value}} for value in ("9", float("nan"), -1, None, [])),
        {"exposure": [1]},
    ],
    ids=json.dumps,
)
def test_a_value_of_another_kind_voids_the_result_instead_of_being_bent(odd):
    assert result("", json.dumps(GOOD)).is_valid
    found = result("", json.dumps({**GOOD, **odd}))
    assert (found.sessions, found.counted) == (0, 0)
    assert "can't be used" in " ".join(found.invalid_because)


@pytest.mark.parametrize(
    "text",
    ['{"sessions": 4, "counts": {"leak": 2, "leak": 0, "done": 4}}', '{"sessions":' + "[" * 99_999],
    ids=["a class twice", "too deep"],
)
def test_json_that_says_two_things_or_never_ends_is_void(text):
    assert "can't be used" in " ".join(result("", text).invalid_because)


def test_one_text_is_one_reason():
    found = result("", json.dumps({**GOOD, "invalid_because": "the disk was full"}))
    assert found.invalid_because == ("the disk was full",)


@pytest.mark.parametrize("counts", [{}, {"infra": 4}])
def test_a_program_without_a_session_that_counts_gives_no_clean_trial(counts):
    found = result("", json.dumps({"sessions": sum(counts.values()), "counts": counts}))
    assert found.invalid_because == ("no session says anything about the model",)


def test_a_failed_or_overrun_program_is_void_even_with_a_fine_line():
    failed = result(LINE, exit_code=3)
    assert "exit code 3" in failed.invalid_because[0]
    late = result(LINE, exit_code=137, is_timed_out=True)
    assert "deadline" in late.invalid_because[0]
    assert late.count_of[OutcomeClass.LEAK] == 2


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        ("python3: can't open file 'x.py': No such file\n", "'x.py': No such file"),
        ("Traceback (most recent call last):\n  File\nKeyError: 'a'\n\n", "saying: KeyError: 'a'"),
        ("\x1b[31mred\x1b[0m\n", "saying: ?[31mred?[0m"),
        ("x" * 5000, "x" * 200 + "…"),
    ],
)
def test_a_program_that_fails_is_quoted_with_its_last_words(stderr, told):
    (first, *_) = result("", exit_code=2, stderr_tail=stderr).invalid_because

    assert first.startswith("the workload ended with exit code 2, saying: ")
    assert first.endswith(told)


@pytest.mark.parametrize("stderr", ["", "\n \n"])
def test_a_program_that_fails_without_a_word_is_not_quoted(stderr):
    (first, *_) = result("", exit_code=2, stderr_tail=stderr).invalid_because

    assert first == "the workload ended with exit code 2"
