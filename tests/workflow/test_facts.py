"""Trials as a run remembers them, and what is made of them for the verdict."""

import dataclasses
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.effective import Kind
from fleetctl.analysis.guards import OtherFailures, fact_checks
from fleetctl.spec.experiment import Experiment, Head, Observer, VerdictSpec
from fleetctl.workflow.facts import (
    TrialFacts,
    aa_record,
    arm_counts,
    clock_steps,
    effective_differences,
    guard_facts,
    in_order,
    minutes_per_run,
    not_countable,
    run_of,
)

FACTS = TrialFacts(
    trial="trials/001-control",
    arm="control",
    host="h",
    host_class="c",
    run_index=0,
    block="",
    block_runs=0,
    started_s=1.0,
    wall_s=2.0,
    boot="b1",
    corrupted=2,
    counted=38,
    infra=2,
    planned=40,
    counts={"leak": 2, "infra": 2, "done": 36},
    line="CORRUPTION …",
    exposure={"concurrency": 30.0, "tokens": 90.0, "rounds": 3.0, "in_flight_s": 5.0},
    lag_p99_ms=4.0,
    concurrency_share=1.0,
    patches={"serve.x": "a" * 64},
    processes=({"A": "1"},),
    workload_sha256="w",
)


def treated(**changes) -> TrialFacts:
    facts = {"arm": "treatment", "trial": "trials/002-treatment", "started_s": 2.0, "boot": "b2"}
    return dataclasses.replace(FACTS, **{**facts, **changes})


def experiment(**changes) -> Experiment:
    return Experiment(experiment=Head(name="e", target="t"), **changes)


def failures_of(*facts) -> OtherFailures | None:
    """Return what is known of the treatment's sessions that failed without being corrupt."""
    found = guard_facts(experiment(), [FACTS, *facts], given_up_runs=0, perturbing=())
    return found.treatment.other_failures


def test_sessions_that_failed_without_being_corrupt_are_told_by_run_and_class():
    counts = {"leak": 2, "infra": 2, "no_tool": 1, "no_answer": 3, "maxrounds": 2, "done": 28}
    found = failures_of(treated(counts=counts), treated(counts=counts | {"error": 1}, boot="b3"))

    assert [(run.bad, run.sessions, run.boot) for run in found.counts.runs] == [
        (4, 36, "b2"),
        (5, 36, "b3"),
    ]
    assert {name: n for name, n in found.classes.items() if n} == {
        "error": 1,
        "no_tool": 2,
        "no_answer": 6,
    }


def test_a_program_that_calls_further_classes_corrupt_leaves_the_other_failures_unknown():
    assert failures_of(treated(corrupted=5, counts={"leak": 2, "no_tool": 3, "done": 33})) is None
    assert failures_of() is None


def test_a_trial_that_counts_no_session_of_its_classes_costs_no_report():
    """What is only told beside a verdict must never keep it from being given."""
    assert failures_of(treated(corrupted=0, counted=0, counts={"no_tool": 5})) is None


def test_facts_survive_the_disk():
    assert TrialFacts.from_json(json.loads(json.dumps(FACTS.to_json()))) == FACTS


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.sampled_from("ab")), max_size=8), st.randoms())
def test_trials_that_were_counted_are_in_that_order_whatever_clocks_and_lists_say(begun, dice):
    made = [
        dataclasses.replace(FACTS, trial=f"{n}", started_s=at_s, host=host, sequence=n)
        for n, (at_s, host) in enumerate(begun)
    ]
    mixed = dice.sample(made, len(made))

    assert list(in_order(mixed)) == made
    backwards = sum(b.started_s - a.started_s <= -1 for a, b in itertools.pairwise(made))
    assert len(clock_steps(mixed)) == backwards
    assert (minutes_per_run(mixed) is None) == bool(backwards or not made)


def test_machines_that_counted_for_themselves_are_put_in_order_by_their_clocks():
    made = [
        dataclasses.replace(FACTS, trial=f"{n}", started_s=float(n), sequence=n % 2)
        for n in range(4)
    ]

    assert list(in_order(made[::-1])) == made
    assert clock_steps(made[::-1]) == ()


def test_infra_is_neither_corrupt_nor_clean():
    (run,) = arm_counts([FACTS], "control", "corruption").runs

    assert (run.bad, run.sessions, run.infra) == (2, 38, 2)


def test_runs_of_one_boot_are_one_cluster():
    again = dataclasses.replace(FACTS, started_s=3.0, trial="trials/003-control")

    assert len(arm_counts([FACTS, again], "control", "corruption").clusters) == 1


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"patches": {"serve.x": "b" * 64}}, [Kind.PATCH]),
        ({"processes": ({"A": "0"},)}, [Kind.FLAG]),
        ({"processes": ({"A": "1"}, {})}, [Kind.MIXED]),
        ({"workload_sha256": "v"}, [Kind.WORKLOAD]),
        ({"host_class": "d"}, [Kind.HOST_CLASS]),
    ],
)
def test_what_differs_is_read_back_not_declared(changes, kinds):
    found = effective_differences([FACTS, treated(**changes)], [])

    assert [difference.kind for difference in found] == kinds


def test_until_both_arms_have_run_nothing_is_known_to_differ():
    assert effective_differences([FACTS], []) is None


def test_an_observer_counts_as_on_only_where_every_process_has_it_on():
    spec = experiment(observer=(Observer(flag="A"),))
    on = guard_facts(spec, [FACTS, treated()], given_up_runs=0, perturbing=())
    off = guard_facts(
        spec, [FACTS, treated(processes=({"A": "0"},))], given_up_runs=0, perturbing=()
    )

    assert on.observers == ("A",)
    assert off.observers == ()


def test_what_happened_in_a_trial_names_the_trial():
    facts = guard_facts(
        experiment(),
        [dataclasses.replace(FACTS, disturbances=("h: the unit was restarted",)), treated()],
        given_up_runs=0,
        perturbing=(),
    )

    assert facts.control.disturbances == ("trials/001-control: h: the unit was restarted",)
    assert facts.orders == ("AB",)


@pytest.mark.parametrize(
    ("control", "treatment", "passed"),
    [
        (None, None, None),
        ((), None, None),
        ((), (), True),
        ((), ("the server had 47 requests at once",), False),
    ],
)
def test_load_of_others_is_checked_where_the_servers_told_of_it(control, treatment, passed):
    facts = [dataclasses.replace(FACTS, foreign_load=control), treated(foreign_load=treatment)]

    guards = guard_facts(experiment(), facts, given_up_runs=0, perturbing=())
    arms = [arm_counts(facts, arm, "corruption") for arm in ("control", "treatment")]
    found = fact_checks(*arms, guards)

    (check,) = [each for each in found if each.name == "foreign_load"]
    assert (check.passed, check.voids) == (passed, False)
    if passed is False:
        assert check.facts == (
            "treatment: trials/002-treatment: the server had 47 requests at once",
        )


BY_CLASS = {"leak": 2, "infra": 2, "no_answer": 5, "error": 1, "maxrounds": 3, "done": 27}


def test_the_metric_picks_the_count_and_all_else_is_the_same():
    fact = dataclasses.replace(FACTS, counts=BY_CLASS)
    corrupt, failed = run_of(fact, "corruption"), run_of(fact, "failures")

    assert (corrupt.bad, failed.bad) == (2, 8)
    assert dataclasses.replace(failed, bad=2) == corrupt


@pytest.mark.parametrize(
    "changes",
    [{"counts": {}}, {"counts": {"leak": 2, "done": 30}}, {"corrupted": 3}],
    ids=["only the corrupted were told", "fewer than counted", "more corrupted than failed"],
)
def test_a_trial_whose_failures_nobody_knows_is_void_by_them_and_counts_by_corruption(changes):
    fact = treated(**changes)
    by_failures = experiment(verdict=VerdictSpec(metric="failures"))
    (told,) = not_countable(fact, "failures")

    assert run_of(fact, "failures").sessions == 0
    guards = guard_facts(by_failures, [FACTS, fact], given_up_runs=0, perturbing=())
    assert guards.treatment.disturbances == (f"{fact.trial}: {told}",)
    assert not_countable(fact, "corruption") == ()
    assert run_of(fact, "corruption").sessions == 38


def test_what_runs_teach_is_kept_by_each_metric_that_can_count_them():
    facts = [dataclasses.replace(FACTS, counts=BY_CLASS), dataclasses.replace(FACTS, boot="b2")]
    kept = aa_record("r", "c", "w", facts)

    assert [run.bad for run in kept.counts.runs] == [2, 2]
    assert [run.bad for run in kept.failures.runs] == [8, 2]
    assert aa_record("r", "c", "w", [dataclasses.replace(FACTS, counts={})]).failures is None
