"""A bisection told in words: never surer than its posterior and its confirmation."""

import json

import pytest

from fleetctl.analysis.bisection_search import (
    BisectDesign,
    End,
    Ending,
    SearchRun,
    belief_of,
    rates_by_point,
)
from fleetctl.analysis.counts import Run, arm
from fleetctl.analysis.guards import ArmFacts, GuardFacts
from fleetctl.analysis.verdict import judge
from fleetctl.errors import ExitCode
from fleetctl.report.bisect import BisectReport, as_json, headline, next_steps, render

LABELS = ("log", "overlap", "captured", "bf16")


def report(runs, end, *, judgement=None, points=(0, 1, 2, 3, 4), labels=LABELS, skipped=()):
    design = BisectDesign(len(points) - 1, 40)
    told = [SearchRun(point, Run(bad, 40), confirms) for point, bad, confirms in runs]
    return BisectReport(
        name="which_step",
        hypothesis="One step did it.",
        run_id="r",
        labels=labels,
        points=points,
        design=design,
        end=end,
        belief=belief_of(design, told),
        rates=rates_by_point(told),
        search_runs=sum(run.confirms is None for run in told),
        confirmation_runs=sum(run.confirms is not None for run in told),
        judgement=judgement,
        skipped=skipped,
    )


RUNS = [(4, 9, None), (0, 0, None), (2, 0, None), (3, 8, None), (2, 0, None), (3, 9, None)]
FOUND = End(Ending.FOUND, 3)
ARMS_OF_A_CONFIRMATION = (("control", [9, 8, 7, 9]), ("treatment", [0, 1, 0, 0]))


def verdict(control, treatment):
    return judge(arm("control", control, [40] * 4), arm("treatment", treatment, [40] * 4))


def test_a_confirmed_culprit_is_called_found():
    told = report(RUNS, FOUND, judgement=verdict([9, 8, 7, 9], [0, 1, 0, 0]))

    assert headline(told).startswith("FOUND: captured raises the rate from about")
    assert told.exit_code is ExitCode.OK
    assert "confirmation, without it: REDUCED" in " ".join(render(told).split())
    assert next_steps(told) == []


@pytest.mark.parametrize(
    ("control", "treatment", "code"),
    [
        ([9, 3, 8, 5], [7, 4, 3, 6], ExitCode.INCONCLUSIVE),
        ([2, 3, 2, 4], [9, 8, 9, 9], ExitCode.INCONCLUSIVE),
        ([0, 0, 0, 0], [0, 0, 0, 0], ExitCode.INVALID),
    ],
)
def test_a_suspect_whose_confirmation_fails_is_never_called_found(control, treatment, code):
    told = report(RUNS, FOUND, judgement=verdict(control, treatment))

    assert headline(told).startswith("SUSPECT, NOT CONFIRMED: captured")
    assert told.exit_code is code
    assert as_json(told)["verdict"] == "suspect"


def test_a_confirmation_that_may_not_be_judged_tells_why_and_what_mends_that():
    control, treatment = (arm(name, bad, [40] * 4) for name, bad in ARMS_OF_A_CONFIRMATION)
    lost = GuardFacts(ArmFacts(unproven=("trial 3: FLAG is unset",)), ArmFacts(unproven=()))

    told = report(RUNS, FOUND, judgement=judge(control, treatment, guards=lost))

    assert "trial 3: FLAG is unset" in " ".join(render(told).split())
    assert next_steps(told) == ["repair what failed, then measure both arms again"]


def test_a_culprit_between_builds_that_could_not_be_made_is_a_range():
    told = report(
        [(2, 9, None), (0, 0, None), (1, 0, None)],
        End(Ending.FOUND, 2),
        points=(0, 1, 4),
        skipped=(("2/4 overlap", "does not start\n       | a line of its log"),),
    )

    assert "one of overlap, captured, bf16 raises" in headline(told)
    assert "left out: 2/4 overlap: does not start\n" in render(told)
    assert "a line of its log" in as_json(told)["left_out"][0]["why"]


def test_a_merge_asks_for_its_branch():
    labels = ("log", "overlap", "1234567890 merge side (merge)", "bf16")
    told = report(RUNS, FOUND, labels=labels)

    assert "bisect the branch" in next_steps(told)[0]


def test_ends_that_are_alike_are_said_with_both_counts_and_the_bound():
    same = [(4, 2, None), (0, 2, None)] * 5
    told = report(same, End(Ending.NO_CHANGE))

    assert "first 10/200 = 5%, last 10/200 = 5%" in headline(told)
    assert "by 5% or more has probability" in headline(told)
    assert told.exit_code is ExitCode.UNEXPECTED_VERDICT


def test_ends_that_both_have_the_fault_ask_for_a_first_build_without_it():
    faulty = report([(4, 8, None), (0, 7, None)] * 5, End(Ending.NO_CHANGE))
    clean = report([(4, 0, None), (0, 1, None)] * 5, End(Ending.NO_CHANGE))

    assert "the first build has the fault, too" in next_steps(faulty)[0]
    assert next_steps(clean) == ["check that the workload reproduces the fault on the last build"]


def test_reversed_ends_name_the_change_that_mends():
    told = report(
        [(4, 0, None), (0, 9, None), (2, 9, None), (3, 0, None)] * 2, End(Ending.REVERSED)
    )

    assert headline(told).startswith("REVERSED: the list lowers the rate")
    assert "captured" in headline(told)
    assert told.exit_code is ExitCode.UNEXPECTED_VERDICT


def test_a_reversal_that_its_own_runs_do_not_show_names_nothing():
    """Boots that draw lots looked reversed in one search of ten."""
    runs = [(4, 0, None), (0, 9, None), (2, 9, None), (3, 0, None)] * 2
    told = report(runs, End(Ending.REVERSED), judgement=verdict([9, 0, 0, 8], [0, 9, 0, 7]))
    held = report(runs, End(Ending.REVERSED), judgement=verdict([9, 8, 7, 9], [0, 1, 0, 0]))

    assert headline(told).startswith("REVERSED, NOT CONFIRMED: the first build looked worse")
    assert "captured" not in headline(told)
    assert (told.exit_code, as_json(told)["verdict"]) == (ExitCode.INCONCLUSIVE, "inconclusive")
    assert "more runs help" in next_steps(told)[0]
    assert "confirmation, the last build against the first" in " ".join(render(told).split())
    assert (held.exit_code, as_json(held)["verdict"]) == (ExitCode.UNEXPECTED_VERDICT, "reversed")


def test_a_spent_budget_tells_the_credible_set_and_no_culprit():
    told = report([(4, 9, None), (0, 0, None)], End(Ending.OUT_OF_RUNS))

    assert "among 4 changes of 4 with 95% probability" in headline(told)
    assert as_json(told)["culprit"] == []
    assert told.exit_code is ExitCode.INCONCLUSIVE


def test_the_assumption_is_always_printed_and_json_holds_every_number():
    told = report(RUNS, FOUND, judgement=verdict([9, 8, 7, 9], [0, 1, 0, 0]))

    assert "assumes one step" in " ".join(render(told).split())
    found = json.loads(json.dumps(as_json(told)))
    assert found["culprit"] == ["captured"]
    assert found["confirmed"] is True
    assert sum(point["runs"] for point in found["points"]) == len(RUNS)
    belief = found["belief"]
    total = sum(s["raised"] + s["lowered"] for s in belief["steps"]) + belief["none"]
    assert total == pytest.approx(1.0)


def test_the_head_names_the_search_its_run_and_what_was_believed():
    told = render(report(RUNS, FOUND)).splitlines()

    assert told[:2] == ["which_step r", "hypothesis: One step did it."]
