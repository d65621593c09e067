"""A search's log: every question counts once, whatever ends the controller."""

import pytest

from fleetctl.errors import InputError
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import Answered, Asked, SearchLog


@pytest.fixture
def log(tmp_path):
    return SearchLog(RunFolder.create(tmp_path, "r", {}))


def answer(log, number, point, bad=0):
    asked = log.ask(Asked(number, f"build {point}", (point,)))
    log.answer(Answered(asked, f"trials/{number}", {"corrupted": bad}))
    return asked


def test_answers_come_back_in_order_with_what_was_asked(log):
    answer(log, 0, 16, bad=9)
    answer(log, 1, 0)

    again = SearchLog(log.folder).answers()

    assert [(a.asked.key, a.facts["corrupted"]) for a in again] == [((16,), 9), ((0,), 0)]


def test_a_question_that_was_never_answered_is_asked_again_under_a_new_attempt(log):
    first = log.ask(Asked(0, "build 16", (16,)))

    second = SearchLog(log.folder).ask(Asked(0, "build 16", (16,)))

    assert (first.attempt, second.attempt) == (0, 1)
    assert log.answers() == ()


def test_an_answer_that_is_written_twice_counts_once(log):
    asked = answer(log, 0, 16, bad=9)

    log.answer(Answered(asked, "trials/other", {"corrupted": 0}))

    assert [a.facts["corrupted"] for a in log.answers()] == [9]


def test_a_log_cut_at_any_byte_gives_the_answers_before_the_cut_and_goes_on(log):
    for number in range(3):
        answer(log, number, number, bad=number)
    path = log.folder.path / "search.jsonl"
    whole = path.read_bytes()

    for cut in range(0, len(whole), 23):
        path.write_bytes(whole[:cut])
        known = log.answers()
        assert [a.asked.number for a in known] == list(range(len(known)))
        answer(log, len(known), 7, bad=7)
        assert log.answers()[:-1] == known
        assert log.answers()[-1].facts == {"corrupted": 7}


def test_builds_that_can_not_be_made_are_remembered_once_with_their_first_reason(log):
    log.unbuildable((3,), "does not start")
    log.unbuildable((3,), "something else")

    assert log.unbuildables() == {(3,): "does not start"}


def test_another_search_can_not_go_on_in_the_folder(log):
    log.begin("a" * 64)
    log.begin("a" * 64)

    with pytest.raises(InputError, match="other changes"):
        log.begin("b" * 64)
    assert log.is_about("a" * 64)
    assert not log.is_about("b" * 64)


def test_an_answer_is_one_line_whatever_its_text_calls_a_line_end(log):
    asked = log.ask(Asked(0, "build 16", (16,)))

    log.answer(Answered(asked, "trials/0", {"said": "a\u2028b\u0085c"}))

    assert [a.facts["said"] for a in log.answers()] == ["a\u2028b\u0085c"]
