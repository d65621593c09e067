"""A run judged from what its folder holds: the right word, and all that must stand beside it."""

import json
from dataclasses import replace

import pytest

from fleetctl.analysis.history import pool
from fleetctl.analysis.judgement import Flag, Word
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.experiment import read
from fleetctl.workflow.judging import judge_run
from fleetctl.workflow.looks import ORDER
from tests.fakes.recorded_trials import trials

FLAG = '[env]\nA = "0"\n[control]\nenv = { A = "1" }\n'
BUG = {"A": [6, 5, 7, 6, 4, 8, 6, 6], "B": [0] * 8}
ORDER_OF_8 = "ABBA" * 4
FIX = {"A": [10, 9, 11, 10], "B": [0] * 4}
ORDER_OF_4 = "ABBA" * 2


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "r", {})


def judged(folder: RunFolder, facts, body: str = FLAG, *, head: str = "", runs: int = 4):
    spec = folder.path / "e.toml"
    trials_table = "" if "[trials]" in body else f"[trials]\nruns = {runs}\n"
    spec.write_text(f'[experiment]\nname = "e"\ntarget = "t"\n{head}\n{body}\n{trials_table}')
    return judge_run(folder, read(spec), facts, History(folder.path.parent), ())


def report_of(folder: RunFolder) -> str:
    return (folder.path / "report.txt").read_text(encoding="utf-8")


def test_a_sound_run_is_judged_and_its_report_says_the_same_in_every_form(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_8})

    found = judged(folder, trials(ORDER_OF_8, BUG), runs=8)

    assert found.judgement.word is Word.ELIMINATED
    assert found.judgement.flags == ()
    assert report_of(folder).startswith("ELIMINATED: ")
    assert "ELIMINATED" in (folder.path / "report.md").read_text()
    assert json.loads((folder.path / "report.json").read_text())["verdict"] == "eliminated"
    checks = {check.name: check.passed for check in found.judgement.checks}
    assert checks["order_deviates"] is True
    assert checks["blocked_order"] is True


def test_an_order_that_was_not_kept_voids_and_both_orders_are_shown(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_4})

    found = judged(folder, trials("AB" * 4, FIX))

    assert (found.judgement.word, found.judgement.reason) == (Word.INVALID, "order_deviates")
    assert "h was to run ABBAABBA and ran ABABABAB" in report_of(folder)


def test_a_site_that_was_not_to_run_is_a_deviation_too(folder):
    folder.write_json(ORDER, {"other": ORDER_OF_4})

    assert judged(folder, trials(ORDER_OF_4, FIX)).judgement.reason == "order_deviates"


def test_a_run_of_which_no_order_was_recorded_is_not_blamed_for_it(folder):
    checks = judged(folder, trials(ORDER_OF_4, FIX)).judgement.checks

    assert {c.name: c.passed for c in checks}["order_deviates"] is None


STEPS_S = [0.0, -3600.0, 3600.0, -1e9]


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("executed", [ORDER_OF_4, "AB" * 4], ids=["kept", "not kept"])
def test_a_clock_that_was_set_changes_no_verdict_and_is_told_where_it_went_back(
    folder, step_s, executed
):
    folder.write_json(ORDER, {"h": ORDER_OF_4})
    counted = [replace(fact, sequence=n) for n, fact in enumerate(trials(executed, FIX))]
    stepped = [
        replace(fact, started_s=fact.started_s + step_s * (n >= 3))
        for n, fact in enumerate(counted)
    ]

    sound = judged(folder, counted).judgement
    found = judged(folder, stepped).judgement

    assert found == sound
    assert (found.reason == "order_deviates") == (executed != ORDER_OF_4)
    told = "the clock here was set back by" in report_of(folder)
    assert told == (step_s < 0)


def test_where_nobody_counted_the_trials_their_times_give_the_order(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_4})

    found = judged(folder, trials(ORDER_OF_4, FIX)[::-1])

    assert {c.name: c.passed for c in found.judgement.checks}["order_deviates"] is True


def test_a_run_whose_sessions_were_all_lost_is_given_up_and_makes_no_peek_of_the_rest(folder):
    folder.write_json(ORDER, {"h": "ABBAABBA"})
    facts = trials("ABBAABBA", {"A": [6, 5, 7, 6], "B": [1, 1, 0, 1]})
    facts[-1] = replace(facts[-1], counted=0, corrupted=0, infra=40, counts={"infra": 40})

    found = judged(folder, facts).judgement

    assert Flag.PEEKED not in found.flags
    assert found.numbers.comparison.level == pytest.approx(0.05)
    assert (found.word, found.reason) == (Word.INVALID, "infra")


def test_a_run_that_is_not_over_is_a_peek(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_4})

    found = judged(folder, trials("ABBAAB", FIX)).judgement

    assert Flag.PEEKED in found.flags
    assert "peeked" in report_of(folder)


def test_arms_in_blocks_are_judged_only_when_forced_and_then_labelled(folder):
    facts = trials("A" * 4 + "B" * 4, FIX)
    blocks = FLAG + '[trials]\nruns = 4\norder = "blocks"\n'

    forced = judged(folder, facts, blocks, head='forced = ["blocks"]').judgement

    assert forced.word is Word.REDUCED
    assert Flag.BLOCKED_ORDER in forced.flags
    assert "blocked order: all runs of one arm came first" in report_of(folder)
    assert judged(folder, facts).judgement.reason == "blocked_order"


def test_a_control_from_another_day_is_named_in_the_first_sentence(folder):
    history = '[env]\nA = "0"\n[control]\nhistory = { corrupted = 18, sessions = 120 }\n'

    found = judged(folder, trials("BBB", {"B": [2, 2, 5]}), history, runs=3)

    assert found.judgement.word is Word.INCONCLUSIVE
    assert Flag.HISTORICAL_CONTROL in found.judgement.flags
    assert "against a control from another day" in report_of(folder).splitlines()[0]


def test_a_load_that_never_reached_its_trigger_gives_not_exercised(folder):
    facts = trials(ORDER_OF_4, FIX)
    facts[0] = replace(facts[0], missed_triggers=("the largest batch was 1, the fault needs 2",))

    found = judged(folder, facts).judgement

    assert (found.word, found.reason) == (Word.INVALID, "not_exercised")
    assert Flag.NOT_EXERCISED in found.flags
    assert "the load never reached its declared trigger" in report_of(folder).splitlines()[0]
    assert "the largest batch was 1, the fault needs 2" in report_of(folder)


OBSERVER = FLAG + '[[observer]]\nflag = "A"\n'


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("concurrency", "lower concurrency"),
        ("tokens", "fewer tokens"),
        ("rounds", "fewer rounds"),
        ("batch", "fewer requests at once"),
    ],
)
def test_a_slow_observer_that_thins_the_load_is_called_out_by_name(folder, name, told):
    facts = [
        replace(fact, exposure={**fact.exposure, name: fact.exposure[name] * 0.8})
        if fact.arm == "treatment"
        else fact
        for fact in trials(ORDER_OF_4, FIX)
    ]

    found = judged(folder, facts, OBSERVER).judgement

    assert (found.word, found.reason) == (Word.INVALID, f"exposure_{name}")
    report = report_of(folder)
    assert told in report.splitlines()[0]
    assert "observer A" in report


def test_an_observer_that_moved_the_rate_taints_later_runs_that_have_it_on(folder, tmp_path):
    judged(folder, trials(ORDER_OF_4, FIX), OBSERVER)
    later = RunFolder.create(tmp_path / "runs", "later", {})
    both_on = [
        replace(fact, processes=({"A": "1", "B": fact.arm},)) for fact in trials(ORDER_OF_4, FIX)
    ]
    body = '[env]\nB = "0"\n[control]\nenv = { B = "1" }\n[[observer]]\nflag = "A"\n'

    found = judged(later, both_on, body).judgement

    assert (found.word, found.reason) == (Word.INVALID, "perturbing_observer")
    assert Flag.PERTURBING_OBSERVER in found.flags


def test_equal_arms_are_remembered_as_an_a_a_run_and_lend_their_dispersion(folder, tmp_path):
    same = {"A": [6, 2, 9, 5], "B": [7, 3, 5, 8]}
    equal = [replace(fact, processes=({"A": "1"},)) for fact in trials("ABBAABBA", same)]
    first = judged(folder, equal, FLAG.replace('"0"', '"1"')).judgement
    later = RunFolder.create(tmp_path / "runs", "later", {})

    second = judged(later, trials(ORDER_OF_4, FIX)).judgement

    assert first.word not in {Word.REDUCED, Word.WORSE, Word.ELIMINATED}
    assert Flag.HISTORY_USED in second.flags
    assert second.history.records == ("r",)
    assert "from stored A/A runs: r" in report_of(later)


@pytest.mark.parametrize("fault", ["disturbances", "void_because", "unproven"])
def test_a_trial_that_met_with_an_accident_is_no_history(folder, fault):
    equal = [
        replace(f, processes=({"A": "1"},)) for f in trials("ABBA", {"A": [6, 5], "B": [7, 40]})
    ]
    equal[2] = replace(equal[2], **{fault: ("the unit was restarted",)})

    judged(folder, equal, FLAG.replace('"0"', '"1"'), runs=2)
    judged(folder, equal, FLAG.replace('"0"', '"1"'), runs=2)

    (record,) = History(folder.path.parent).aa_records()
    assert [run.bad for run in record.counts.runs] == [6, 7, 5]
    assert record.minutes_per_run == pytest.approx(4 / 4 / 60)


def test_a_history_of_another_workload_is_not_used(folder, tmp_path):
    same = {"A": [6, 2, 9, 5], "B": [7, 3, 5, 8]}
    equal = [
        replace(fact, processes=({"A": "1"},), workload_sha256="other")
        for fact in trials("ABBAABBA", same)
    ]
    judged(folder, equal, FLAG.replace('"0"', '"1"'))
    later = RunFolder.create(tmp_path / "runs", "later", {})

    assert judged(later, trials(ORDER_OF_4, FIX)).judgement.history is None


METRICS = ("corruption", "failures")
FAILURES = '[verdict]\nmetric = "failures"\n' + FLAG


def failing(order: str, failed: dict[str, list[int]], corrupted: int = 1):
    """Trials in which a session of each run is corrupt, and others fail without being so."""
    made, runs = trials(order, {arm: [corrupted] * len(n) for arm, n in failed.items()}), []
    numbers = {arm: iter(found) for arm, found in failed.items()}
    for letter, fact in zip(order, made, strict=True):
        failures = next(numbers[letter])
        counts = {"leak": corrupted, "no_answer": failures, "done": 40 - corrupted - failures}
        runs.append(
            replace(fact, counts=counts, line=f"FAILED sessions: {corrupted + failures}/40")
        )
    return runs


def test_a_fault_that_shows_itself_by_failures_alone_is_judged_by_them(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_4})
    facts = failing(ORDER_OF_4, {"A": [10, 9, 11, 10], "B": [1, 0, 0, 1]})

    found = judged(folder, facts, FAILURES)
    text, stored = report_of(folder), json.loads((folder.path / "report.json").read_text())

    assert found.judgement.word is Word.REDUCED
    assert (found.judgement.control.counts.bad, found.judgement.treatment.counts.bad) == (44, 6)
    assert "of sessions failed" in text
    assert text.count("FAILED sessions: ") == 8
    words = " ".join(text.split()).replace("corrupted ones are among them", "")
    assert "corrupt" not in words.lower()
    assert "are bad" not in text
    assert (stored["metric"], stored["design"]["metric"]) == ("failures", "failures")
    assert "other_failures" not in {check.name for check in found.judgement.checks}
    assert judged(folder, facts).judgement.word is not Word.REDUCED


def test_failures_that_nobody_counted_void_the_verdict_and_cost_no_report(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_4})
    facts = failing(ORDER_OF_4, {"A": [10, 9, 11, 10], "B": [0] * 4})
    facts[2] = replace(facts[2], counts={})

    found = judged(folder, facts, FAILURES)

    assert (found.judgement.word, found.judgement.reason) == (Word.INVALID, "disturbed")
    assert "nobody knows how many failed" in " ".join(report_of(folder).split())


def test_a_control_from_another_day_is_counted_by_the_metric_too(folder):
    history = (
        '[control]\nhistory = { failed = 60, corrupted = 4, sessions = 400 }\n[env]\nA = "0"\n'
    )
    facts = failing("BBBB", {"B": [0] * 4})

    found = judged(folder, facts, '[verdict]\nmetric = "failures"\n' + history).judgement

    assert (found.control.counts.bad, found.control.counts.sessions) == (60, 400)


def test_an_a_a_run_lends_each_metric_its_own_dispersion(folder):
    folder.write_json(ORDER, {"h": ORDER_OF_4})
    alike = [
        replace(fact, processes=({"A": "1"},))
        for fact in failing(ORDER_OF_4, {"A": [1, 9, 2, 16], "B": [12, 0, 3, 9]})
    ]
    judged(folder, alike, FAILURES)
    (record,) = History(folder.path.parent).aa_records()

    assert record.counts.bad == 8
    assert record.failures.bad == 8 + 52
    records = [record]
    phi = {m: pool(records, host_class="c", workload_sha256="w", metric=m).phi for m in METRICS}
    assert phi["failures"] > 3
    assert phi["corruption"] < 1
