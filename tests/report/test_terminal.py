"""The report as plain text."""

import re
from dataclasses import replace

import pytest

from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.guards import ArmFacts, Exposure, GuardFacts
from fleetctl.analysis.verdict import judge
from fleetctl.report import markdown, terminal
from fleetctl.report.tables import Table, checks_table
from fleetctl.trial.classes import OutcomeClass


def test_the_sentence_comes_first_then_the_numbers_then_why(report_of):
    told = terminal.render(report_of([6, 5, 7], [2, 2, 5]))

    places = [
        told.index(part) for part in ("INCONCLUSIVE", "\nRates", "\nTrials", "\nWhy", "\nNext")
    ]
    assert places == sorted(places)
    assert places[0] == 0


def test_no_line_is_longer_than_a_hundred_columns(report_of, measured):
    for report in (report_of([6, 5, 7], [2, 2, 5]), measured):
        lines = [line for line in terminal.render(report).splitlines() if "CORRUPTION" not in line]
        assert max(len(line) for line in lines) <= 100


def test_both_views_of_the_counts_are_shown_with_what_they_assume(report_of):
    told = terminal.render(report_of([6, 5, 7], [2, 2, 5]))

    assert "95% CI, dispersion 1.00 on 4 df" in told
    assert "p = 0.14 (t = -1.84 on 4 df, level 0.05)" in told
    assert "Boschloo p = 0.081, Fisher p = 0.10" in told
    assert "96.8%" in told


def test_every_trial_shows_the_line_people_know_and_its_transcripts(measured):
    told = terminal.render(measured)

    lines = told.splitlines()
    first = lines.index("Trials") + 1
    assert lines[first : first + 2] == [
        "   1  control    trials/0",
        "      CORRUPTION sessions: 6/39 = 15.4%  (leak=6 no_tool=0 error=0"
        " ok-ish[done/maxrounds]=33)  infra=1 (not counted)",
    ]
    places = [told.index(f"trials/{i}") for i in range(4)]
    assert places == sorted(places)
    assert "      not usable because the unit restarted" in lines


def test_the_classes_of_each_arm_add_up_to_its_sessions(measured):
    told = terminal.render(measured).splitlines()

    start = told.index("Outcome classes")
    table = [line.rsplit(maxsplit=2) for line in told[start + 2 : told.index("", start)]]
    for column in (1, 2):
        counts = [int(row[column]) for row in table]
        assert counts[-1] == sum(counts[:-1]) == 80
    assert table[-1][0].strip() == "all sessions"


def test_a_report_of_every_class_fits_a_hundred_columns(measured):
    every = {str(name): 1234 for name in OutcomeClass}
    full = replace(measured, trials=tuple(replace(t, classes=every) for t in measured.trials))

    told = [line for line in terminal.render(full).splitlines() if "CORRUPTION" not in line]

    assert max(map(len, told)) <= 100
    assert {line.split()[0] for line in told if line.startswith("  ") and line.split()} >= set(
        every
    )


def test_name_hypothesis_changes_and_notes_are_told(measured):
    changed = (
        Difference(Kind.PATCH, "indexer", "aa", "bb"),
        Difference(Kind.CHANGE, "fp8", "without", "with"),
    )

    told = terminal.render(replace(measured, differences=changed))

    assert "persistent_logits 20261129-1\nhypothesis: The buffer is the victim.\n" in told
    assert "changed: patch indexer, aa -> bb\nchanged: fp8, without -> with" in told
    assert told.endswith("- process hosts can't show a power cut\n")


def test_checks_show_their_numbers_and_what_is_unknown_is_named(report_of):
    facts = ArmFacts(client_lag_p99_ms=250.0, achieved_concurrency=0.99, unproven=())
    slow = replace(facts, exposure=Exposure(in_flight_s=15.0), unproven=("flag of pid 7",))
    facts = replace(facts, exposure=Exposure(in_flight_s=10.0))

    told = terminal.render(report_of([6, 5, 7], [2, 2, 5], guards=GuardFacts(facts, slow)))
    flat = " ".join(told.split())

    assert "FAIL client's event-loop lag, 99th percentile 250 ms at most 100 ms" in flat
    assert "ok concurrency reached 99% at least 95%" in flat
    assert "note difference of time in flight per session 50% at most 10%" in flat
    assert "FAIL what ran is what was asked for treatment: flag of pid 7" in flat
    assert "ok treatment runs agree with each other p = 0.34 at least 0.05" in flat
    assert "lower bound of its rate 8.6% above 1%" in flat
    assert "not checked: no trial was disturbed;" in flat


def test_the_check_of_disturbed_trials_counts_them_and_leaves_their_reasons_to_why(measured):
    check = next(c for c in measured.judgement.checks if c.name == "disturbed")
    twice = ("treatment: trials/2: it stalled", "treatment: trials/2: it swapped")
    unnamed = ("a host was rebooted",)
    found = {}
    for facts in (("control: trials/3: the unit restarted",), twice, unnamed):
        checks = tuple(
            replace(c, passed=False, facts=facts) if c is check else c
            for c in measured.judgement.checks
        )
        report = replace(measured, judgement=replace(measured.judgement, checks=checks))
        rows = {row[1]: row for row in checks_table(report).rows}
        found[facts] = rows["no trial was disturbed"][2]

    assert list(found.values()) == ["1 of 4 trials", "1 of 4 trials", "a host was rebooted"]


def test_an_empty_arm_is_shown_without_rates_or_comparison(report_of):
    told = terminal.render(report_of([6, 5, 7], []))

    assert "0/0 = n/a" in told
    assert "Comparison" not in told


def test_one_run_per_arm_shows_no_interval_it_can_not_know(report_of):
    told = terminal.render(report_of([6], [2]))

    assert "spread of runs unknown" in told
    assert "not possible: no replication and no history" in told
    assert "by 1 run per arm" in told
    assert "not even a complete fix" in told


def test_a_report_in_which_everything_was_checked_lists_nothing_as_unknown(measured):
    known = tuple(replace(c, passed=True) for c in measured.judgement.checks)
    report = replace(measured, judgement=replace(measured.judgement, checks=known))

    assert "not checked" not in terminal.render(report)


def test_an_evalue_and_an_undeclared_look_are_shown(measured):
    numbers = measured.judgement.numbers
    peeked = replace(numbers, evalue=3.26, comparison=replace(numbers.comparison, level=None))
    report = replace(measured, judgement=replace(measured.judgement, numbers=peeked))

    told = terminal.render(report)

    assert "e-value of the random blocks" in told
    assert "3.26" in told
    assert "look not declared" in told


def test_arms_too_large_for_boschloo_show_fisher_alone(report_of):
    told = terminal.render(report_of([6] * 16, [6] * 16))

    assert "Fisher p = 1.00" in told
    assert "Boschloo" not in told


def test_a_table_without_text_in_a_column_leaves_it_out():
    lines = terminal.grid(Table("t", ("a", "b", "c"), (("1", "", "3"), ("2", "", ""))))

    assert lines == ["a  c", "1  3", "2"]
    assert terminal.grid(Table("t", ("a",), ())) == []


@pytest.mark.parametrize("before", range(40, 100, 7))
def test_a_command_is_never_broken_over_two_lines(before):
    command = "`fleetctl matrix --resume 20261130-163518-runner_x_indexer-df62`"
    text = f"{'x' * before} {command} makes them"

    lines = terminal.wrapped(text, "  ")

    assert any(command in line for line in lines)
    assert " ".join(line.strip() for line in lines) == text
    assert all(len(line) <= 100 for line in lines)


def test_no_cell_of_a_table_makes_it_wider_than_the_page():
    long = "control: trials/001-control: the unit restarted itself (0 -> 1); " * 8
    table = Table(
        "t", ("", "check", "found", "allowed"), (("FAIL", "no trial " * 9, long, "at most 5%"),)
    )

    lines = terminal.grid(table)

    assert max(map(len, lines)) <= terminal.WIDTH - 2
    assert " ".join(" ".join(lines).split()).count("restarted") == long.count("restarted")


@pytest.mark.parametrize(
    ("cell", "parts"),
    [
        ("factor=level," * 8 + "probe=none", {"factor=level", "probe=none"}),
        ("runs/a-long-name/" * 6 + "trials/001", {"runs", "a-long-name", "trials", "001"}),
    ],
)
def test_a_name_that_is_too_long_for_its_column_is_broken_between_its_parts(cell, parts):
    lines = terminal.grid(Table("t", ("a", "b"), ((cell, "x" * 40),)))

    shown = [line.split()[0] for line in lines[1:]]
    assert len(shown) > 1
    assert "".join(shown) == cell
    assert {part for line in shown for part in re.split("[,/]", line) if part} == parts


def test_checks_with_much_to_tell_stay_within_the_page(report_of):
    disturbed = tuple(f"trials/{n:03}-control: the unit restarted itself" for n in range(30))
    facts = GuardFacts(ArmFacts(disturbances=disturbed), ArmFacts(disturbances=()))

    told = terminal.render(report_of([6, 5, 7], [2, 2, 5], guards=facts))

    assert max(map(len, told.splitlines())) <= 100
    assert all(f"trials/{n:03}-control" in told for n in range(30))


@pytest.mark.parametrize("render", [terminal.render, markdown.render], ids=["text", "markdown"])
def test_arms_that_ran_alike_are_told_to_be_alike(measured, render):
    unknown, alike = (render(replace(measured, differences=d)) for d in (None, ()))

    told = "changed: nothing; both arms ran alike, so this is an A/A run"
    assert told in alike
    assert told not in unknown


@pytest.mark.parametrize(
    ("names", "found"), [("", "nothing"), ("x", "1 thing"), ("xy", "2 things")]
)
def test_the_check_of_one_variable_counts_what_differed_and_breaks_no_name(measured, names, found):
    differences = tuple(Difference(Kind.FLAG, name, "0", "1") for name in names)
    arms = [measured.judgement.control.counts, measured.judgement.treatment.counts]
    judgement = judge(*arms, guards=GuardFacts(differences=differences))

    told = terminal.render(replace(measured, judgement=judgement, differences=differences))

    (line,) = [x for x in told.splitlines() if "one thing at most differs" in x]
    assert line.split("  ")[-1].strip() == found
