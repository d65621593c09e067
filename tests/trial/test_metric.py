"""What a metric counts as bad, and the line that tells it."""

import pytest

from fleetctl.trial.classes import OutcomeClass, load_classes
from fleetctl.trial.command_result import command_result
from fleetctl.trial.metric import FINE, bad_sessions, is_bad
from fleetctl.trial.summary import CommandRun, result_from_json, result_to_json


@pytest.mark.parametrize("outcome", list(OutcomeClass))
def test_every_class_that_counts_is_fine_or_a_failure_and_corrupt_ones_are_failures(outcome):
    corrupt, failed = is_bad(outcome, "corruption"), is_bad(outcome, "failures")
    is_counted = outcome not in load_classes().uncounted

    assert failed == (is_counted and outcome not in FINE)
    assert failed or not corrupt


@pytest.mark.parametrize("outcome", list(OutcomeClass))
@pytest.mark.parametrize("metric", ["corruption", "failures"])
def test_the_count_of_a_trial_is_the_sum_over_its_sessions(outcome, metric):
    corrupted, counted = is_bad(outcome, "corruption"), outcome not in load_classes().uncounted
    found = bad_sessions(metric, corrupted=corrupted, counted=counted, counts={outcome: 1})

    assert found == is_bad(outcome, metric)


def told(stdout: str):
    run = CommandRun(("p",), 0, False, "", "", "", 1.0)
    return command_result(run, stdout=stdout, result_file=None)


def test_the_line_tells_what_is_counted_and_calls_nothing_corrupt_that_only_failed():
    found = told('{"sessions": 40, "counts": {"leak": 2, "no_answer": 3, "infra": 1, "done": 34}}')
    classes = "leak=2 no_tool=0 error=0 no_answer=3 ok-ish[done/maxrounds]=34)  infra=1"

    assert found.line().startswith(f"CORRUPTION sessions: 2/39 = 5.1%  ({classes}")
    assert found.line("failures").startswith(f"FAILED sessions: 5/39 = 12.8%  ({classes}")


def test_a_program_that_tells_corrupted_sessions_alone_leaves_the_failures_unknown():
    bare = told("CORRUPTION sessions: 2/40")
    by_class = told("CORRUPTION sessions: 2/40 (leak=2 no_tool=1 ok-ish=37)")

    assert bare.bad("failures") is None
    assert bare.line("failures") == bare.line()
    assert result_from_json(result_to_json(bare)) == bare
    assert by_class.bad("failures") == 3
