"""A sequential run looks where it said it would, and ends when it has its answer."""

from types import SimpleNamespace

import pytest

from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.experiment import read
from fleetctl.workflow.judging import judge_run
from fleetctl.workflow.looks import ORDER, Looks
from tests.fakes.recorded_trials import trials

CLEAR = {"A": [20, 21, 19, 20], "B": [0, 0, 0, 0]}
SAME = {"A": [6, 5, 7, 6], "B": [5, 7, 6, 6]}
ORDER_OF_4 = "ABBABAAB"


class Talk:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "r", {})


def asked(folder, *, stop="sequential", expect="", looks="[3]"):
    spec = folder.path / "e.toml"
    spec.write_text(
        '[experiment]\nname = "e"\ntarget = "t"\n[env]\nA = "0"\n[control]\nenv = { A = "1" }\n'
        f'[trials]\nruns = 4\nstop = "{stop}"\nlooks = {looks}\n[verdict]\n{expect}\n'
    )
    return read(spec)


def looks_of(folder, question, planned=ORDER_OF_4):
    edges = SimpleNamespace(
        runs=folder.path.parent, clock=SimpleNamespace(now_s=lambda: 9.0), talk=Talk()
    )
    return Looks(edges, folder, question.experiment, {"h": planned})


def made(looks, facts):
    """How many trials are made until the run has its answer."""
    for number, fact in enumerate(facts):
        if looks.is_enough:
            return number
        looks.after(fact)
    return len(facts)


def test_a_clear_result_ends_the_run_at_its_look_and_is_judged_as_of_the_look(folder):
    question = asked(folder)
    looks = looks_of(folder, question)

    assert made(looks, trials(ORDER_OF_4, CLEAR)) == 6
    assert looks.edges.talk.lines == ["look at 3 runs per arm: reduced; the run ends here"]
    folder.write_json(ORDER, looks.planned)
    found = judge_run(folder, question, looks.judged, History(folder.path.parent), ())
    assert str(found.judgement.word) == "reduced"
    assert "peeked" not in [str(flag) for flag in found.judgement.flags]
    assert found.judgement.numbers.comparison.level == pytest.approx(0.0193, abs=1e-4)
    assert "ended early: a declared look decided" in (folder.path / "report.txt").read_text()


def test_an_undecided_look_goes_on_and_is_recorded(folder):
    looks = looks_of(folder, asked(folder))

    assert made(looks, trials(ORDER_OF_4, SAME)) == 8
    (event,) = [event for event in folder.events() if event.kind == "look"]
    assert (event.facts["runs"], event.facts["verdict"]) == (3, "inconclusive")
    assert not event.facts["is_enough"]
    assert len(looks.judged) == 8


def test_a_fixed_run_is_never_looked_at(folder):
    looks = looks_of(folder, asked(folder, stop="fixed"))

    assert made(looks, trials(ORDER_OF_4, CLEAR)) == 8
    assert list(folder.events()) == []


def test_who_hopes_for_gone_goes_on_while_more_clean_runs_may_show_it(folder):
    hoping = asked(folder, expect='expect = "eliminated"')
    refuted = {"A": CLEAR["A"], "B": [3, 4, 3, 3]}

    assert made(looks_of(folder, hoping), trials(ORDER_OF_4, CLEAR)) == 8
    assert made(looks_of(folder, hoping), trials(ORDER_OF_4, refuted)) == 6


def test_trials_under_way_at_the_decisive_look_are_named_and_not_counted(folder):
    question = asked(folder)
    looks = looks_of(folder, question)
    for fact in trials(ORDER_OF_4, CLEAR)[:7]:
        folder.record(1.0, "trial", trial=fact.trial, slot=0)
        looks.after(fact)

    judge_run(folder, question, looks.judged, History(folder.path.parent), ())

    assert len(looks.judged) == 6
    assert "not counted: trials/007-control" in (folder.path / "report.txt").read_text()


def test_a_controller_that_comes_back_neither_looks_again_nor_goes_on_after_the_answer(folder):
    question, facts = asked(folder), trials(ORDER_OF_4, CLEAR)
    made(looks_of(folder, question), facts)
    again = looks_of(folder, question)

    again.remember(facts[:6])

    assert again.is_enough
    assert len(again.judged) == 6
    assert len([event for event in folder.events() if event.kind == "look"]) == 1


def test_a_controller_that_comes_back_before_the_look_takes_it(folder):
    looks = looks_of(folder, asked(folder))
    facts = trials(ORDER_OF_4, CLEAR)
    looks.remember(facts[:5])

    looks.after(facts[5])

    assert looks.is_enough


def test_an_arm_that_is_ahead_takes_no_second_look(folder):
    looks = looks_of(folder, asked(folder, looks="[1, 3]"), "ABBBAAAB")

    made(looks, trials("ABBBAAAB", SAME))

    assert [e.facts["runs"] for e in folder.events() if e.kind == "look"] == [1, 3]
