"""From a log of answers to the next question, also where builds are left out."""

from pathlib import Path

import pytest

from fleetctl.analysis.bisection_search import BisectDesign, End, Ending
from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.judgement import Word
from fleetctl.analysis.minimization import MinimizeDesign
from fleetctl.errors import ExitCode
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import Answered, Asked, SearchLog
from fleetctl.workflow.bisect import read_bisect
from fleetctl.workflow.bisect_search import BisectSearch, as_one_change, report_bisect
from fleetctl.workflow.minimize_search import MinimizeSearch
from tests.workflow.searches import facts

ROOT = Path(__file__).parents[2]
LABELS = tuple(f"c{k}" for k in range(1, 9))


def measure(search, rate, unbuildable=()):
    """Answer a search's questions until it ends; a build in `unbuildable` does not start."""
    answers, left_out = [], {}
    while (question := search.next(answers, left_out)) is not None:
        if question.key in unbuildable:
            assert not question.must_work
            left_out[question.key] = "does not start"
            continue
        asked = Asked(len(answers), question.build, question.key, question.confirms)
        found = {**facts(rate(question.key)), "boot": f"boot {len(answers)}"}
        answers.append(Answered(asked, "t", found))
    return answers, left_out


@pytest.fixture
def search():
    return BisectSearch(BisectDesign(8, 40), LABELS, make=None)


def test_a_search_names_its_builds_by_place_and_last_change(search):
    assert search.next([], {}).build == "8/8 c8"
    assert search.name(0) == "0/8 none of the changes"


def test_a_build_that_does_not_start_is_left_out_and_its_changes_share_the_blame(search):
    broken = {(4,), (5,)}
    answers, left_out = measure(search, lambda key: 20 if key[0] >= 5 else 0, broken)

    points = search.points(left_out)
    end = search.step(answers, points)

    assert end.ending is Ending.FOUND
    assert (points[end.culprit - 1], points[end.culprit]) == (3, 6)
    assert all(answered.asked.key not in broken for answered in answers)


def test_a_build_left_out_late_moves_no_answer_to_another_point(search):
    answers, _ = measure(search, lambda key: 20 if key[0] >= 5 else 0)
    measured = {answered.asked.key for answered in answers}
    spare = next((k,) for k in range(9) if (k,) not in measured)

    assert search.step(answers, search.points({spare: "gone"})) == End(
        Ending.FOUND, search.points({spare: "gone"}).index(5)
    )


def test_every_flag_that_a_change_may_set_is_looked_at_from_the_start():
    asked = read_bisect(ROOT / "experiments/bisect.toml")

    assert set(asked.job.flags) == {name for content in asked.contents for name in content.flags}
    assert "SGLANG_LOG_DECODE_GRAPH_KEY" in asked.job.flags


def test_the_confirmation_is_judged_by_the_real_judge_from_its_own_runs(tmp_path):
    asked = read_bisect(ROOT / "experiments/bisect.toml")
    labels = tuple(content.name for content in asked.contents[1:])
    search = BisectSearch(BisectDesign(5, 40), labels, make=None)
    folder = RunFolder.create(tmp_path, "r", {})
    answers, _ = measure(search, lambda key: 12 if key[0] >= 4 else 0)
    for answered in answers:
        SearchLog(folder).answer(answered)

    report = report_bisect(asked, search, folder)

    assert report.end == End(Ending.FOUND, 4)
    assert report.labels[3] == "bf16_keys"
    control, treatment = report.judgement.control.counts, report.judgement.treatment.counts
    assert (control.bad, control.sessions) == (48, 160)
    assert (treatment.bad, treatment.sessions) == (0, 160)
    assert report.judgement.word is Word.REDUCED
    assert report.exit_code is ExitCode.OK
    assert report.search_runs + report.confirmation_runs == len(answers)


def test_a_reversal_is_judged_from_runs_of_both_ends_made_for_that_alone(tmp_path):
    asked = read_bisect(ROOT / "experiments/bisect.toml")
    labels = tuple(content.name for content in asked.contents[1:])
    search = BisectSearch(BisectDesign(5, 40), labels, make=None)
    folder = RunFolder.create(tmp_path, "r", {})
    answers, _ = measure(search, lambda key: 0 if key[0] >= 4 else 12)
    for answered in answers:
        SearchLog(folder).answer(answered)

    report = report_bisect(asked, search, folder)

    assert report.end == End(Ending.REVERSED)
    control, treatment = report.judgement.control.counts, report.judgement.treatment.counts
    assert (control.bad, treatment.bad, treatment.sessions) == (48, 0, 160)
    assert report.exit_code is ExitCode.UNEXPECTED_VERDICT


def test_a_change_of_many_files_is_one_thing_and_a_second_thing_is_still_seen():
    parts = (
        Difference(Kind.PATCH, "m", "1", "2"),
        Difference(Kind.FLAG, "X", "0", "1"),
        Difference(Kind.HOST_CLASS, "host class", "a", "b"),
    )

    assert [d.kind for d in as_one_change(parts)] == [Kind.CHANGE, Kind.HOST_CLASS]
    assert as_one_change(()) == ()
    assert as_one_change(None) is None


def test_sets_have_names_that_no_two_share():
    labels = tuple(f"c{k}" for k in range(1, 13))
    search = MinimizeSearch(MinimizeDesign(12, 40), labels, make=None)
    sets = [frozenset(s) for s in (
        (), range(12), (0, 1), range(11), range(6), range(6, 12), (0, 1, 2, 4, 5, 7),
    )]  # fmt: skip

    names = [search.name(subset) for subset in sets]

    assert names[:4] == ["none of the changes", "all changes", "c1 + c2", "all but c12"]
    assert names[6] == "changes 1-3, 5-6, 8"
    assert len(set(names)) == len(names)


def test_a_minimisation_goes_from_answers_to_the_next_set():
    search = MinimizeSearch(MinimizeDesign(3, 40, end_runs=2), ("a", "b", "c"), make=None)

    answers, _ = measure(search, lambda key: 20 if {0, 2} <= set(key) else 0)

    assert search.step(answers, {}).subset == {0, 2}
    assert search.next(answers, {}) is None
