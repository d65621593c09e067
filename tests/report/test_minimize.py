"""A minimisation told in words."""

import json
from dataclasses import replace

import pytest

from fleetctl.analysis.minimization import (
    Keeps,
    Minimized,
    MinimizeDesign,
    MinimizeEnding,
    Test,
)
from fleetctl.errors import ExitCode
from fleetctl.report.minimize import MinimizeReport, as_json, headline, next_steps, render

Test.__test__ = False
LABELS = ("log", "overlap", "captured", "bf16")


def report(ending=MinimizeEnding.MINIMAL, subset=(1, 2), direction=1, **more):
    return MinimizeReport(
        name="which_few",
        hypothesis="",
        run_id="r",
        labels=LABELS,
        design=MinimizeDesign(4, 40),
        found=Minimized(ending, frozenset(subset), direction, **more),
        builds=(("all changes", 4, 30, 160), ("none of the changes", 4, 1, 160)),
        runs=8,
    )


def text(told):
    return " ".join(render(told).split())


def test_a_pair_is_named_with_what_it_does_together():
    told = report(rest_keeps=Keeps.NO)

    assert headline(told).startswith("MINIMAL: overlap + captured together raise the rate")
    assert "interaction: overlap with captured" in text(told)
    assert "1-minimal" in text(told)
    assert "all the other changes without these do not have the effect" in text(told)
    assert told.exit_code is ExitCode.OK


def test_a_lone_change_that_mends_is_said_to_lower_the_rate():
    assert "captured alone lowers the rate" in headline(report(subset=(2,), direction=-1))


def test_what_hides_the_effect_and_a_second_cause_are_told():
    told = report(subset=(2,), masking=frozenset({0}), rest_keeps=Keeps.YES)

    assert "not monotone: log, added to the minimal set, ends the effect" in text(told)
    assert "a second cause" in text(told)
    assert "interaction: log with captured" in text(told)
    assert next_steps(told) == ["minimise again without captured to find the second cause"]


def test_a_change_whose_test_was_not_decided_is_not_said_to_be_needed():
    open_test = Test(frozenset({1}), "reduce", Keeps.UNRESOLVED, 12)
    told = report(tests=(open_test,))

    assert "not shown to be needed, the test without it was not decided: captured" in text(told)
    assert "1 test not decided" in text(told)
    assert "whether it takes captured could not be decided" in headline(told)
    assert "the effect is gone" not in headline(told)


@pytest.mark.parametrize(
    ("ending", "direction", "says", "code"),
    [
        (MinimizeEnding.NO_EFFECT, 0, "NO EFFECT", ExitCode.UNEXPECTED_VERDICT),
        (
            MinimizeEnding.OUT_OF_RUNS,
            1,
            "overlap + captured keep the effect",
            ExitCode.INCONCLUSIVE,
        ),
        (MinimizeEnding.OUT_OF_RUNS, 0, "no effect is shown yet", ExitCode.INCONCLUSIVE),
    ],
)
def test_other_ends_are_said_as_they_are(ending, direction, says, code):
    told = report(ending, direction=direction)

    assert says in headline(told)
    assert told.exit_code is code
    assert next_steps(told)


def test_where_the_fault_is_there_without_any_change_that_is_where_to_look():
    alike = replace(
        report(MinimizeEnding.NO_EFFECT, direction=0),
        builds=(("all changes", 4, 30, 160), ("none of the changes", 4, 28, 160)),
    )
    clean = replace(alike, builds=(("all changes", 4, 0, 160), ("none of the changes", 4, 1, 160)))

    assert next_steps(alike) == [
        "the fault is there without any of the changes, too: look in what lies below them"
    ]
    assert next_steps(clean) == ["check that the workload reproduces the effect with all changes"]


def test_json_holds_every_number():
    test = Test(frozenset({1}), "reduce", Keeps.NO, 2)
    found = json.loads(json.dumps(as_json(report(tests=(test,), rest_keeps=Keeps.NO))))

    assert found["minimal"] == ["overlap", "captured"]
    assert found["tests"] == [{"changes": ["overlap"], "why": "reduce", "keeps": "no", "runs": 2}]
    assert found["builds"][0] == {"build": "all changes", "runs": 4, "bad": 30, "sessions": 160}
