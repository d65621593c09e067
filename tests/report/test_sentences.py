"""One sentence first, in words an engineer acts on."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.analysis.counts import ArmCounts, DrawnBlock, Run, arm
from fleetctl.analysis.design import Design
from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.guards import ArmFacts, Exposure, GuardFacts, OtherFailures
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import Flag, Word
from fleetctl.analysis.verdict import judge
from fleetctl.report import as_json, document, markdown, terminal
from fleetctl.report.labels import FAILURES, LABELS, REMEDIES
from fleetctl.report.sentences import FLAG_TOLD, beside, headline, what_next, why

RUNS = st.lists(st.sampled_from([0, 0, 1, 3, 10]), min_size=0, max_size=5)
SIXTEEN = ([6] * 16, [6] * 16)


def judged(control, treatment, sessions=40, **facts):
    return judge(
        arm("control", control, [sessions] * len(control)),
        arm("treatment", treatment, [sessions] * len(treatment)),
        **facts,
    )


@pytest.mark.parametrize(
    ("control", "treatment", "told"),
    [
        (
            [6, 5, 7],
            [2, 2, 5],
            "INCONCLUSIVE: not decided whether 15% -> 7.5% is an effect or chance; elimination is"
            " refuted (at least 3.1% are still bad, one-sided 95% bound); about 6 more runs"
            " per arm would decide if the difference is as seen.",
        ),
        (
            [6, 5, 7],
            [0, 0, 0],
            "REDUCED: 15% -> 0% of sessions are bad (95% CI of the change -26.2 to -8.1 points);"
            " not shown to be below 1%: 0 bad says at most 2.5% (one-sided 95% bound), 179 more"
            " clean sessions (5 runs) are still needed.",
        ),
        (
            [6, 5, 7],
            [1, 1, 2],
            "REDUCED: 15% -> 3.3% of sessions are bad (95% CI of the change -23.4 to -1.5 points);"
            " not shown to be below 1% (at most 9.3%, one-sided 95% bound).",
        ),
        (
            [6, 5, 7, 6, 4, 8, 6, 6],
            [3, 2, 4, 3, 2, 3, 4, 3],
            "REDUCED: 15% -> 7.5% of sessions are bad (95% CI of the change -13.0 to -2.2 points);"
            " not gone: at least 5.1% are still bad (one-sided 95% bound).",
        ),
        (
            [6, 5, 7, 6, 4, 8, 6, 6],
            [0] * 8,
            "ELIMINATED: at most 0.93% of sessions are bad (one-sided 95% bound; 0/320 in 8 runs);"
            " the control has 15%.",
        ),
        (
            [2, 2, 5],
            [12, 14, 13],
            "WORSE: 7.5% -> 32.5% of sessions are bad"
            " (95% CI of the change +11.2 to +38.8 points).",
        ),
        (
            *SIXTEEN,
            "NO EFFECT: any change is smaller than ±7.5 points"
            " (15% -> 15%, 90% CI -3.4 to +3.4 points).",
        ),
        (
            [6, 5, 7],
            [6, 7, 5],
            "INCONCLUSIVE: not decided whether 15% -> 15% is an effect or chance; elimination is"
            " refuted (at least 8.6% are still bad, one-sided 95% bound); no sensible number of"
            " runs settles so small a difference (10 per arm could show that it is within ±7.5"
            " points).",
        ),
        (
            [0, 0, 0],
            [0, 0, 0],
            "INVALID: no conclusion may be drawn: the control does not show the fault beyond"
            " doubt.",
        ),
        (
            [6, 5, 7],
            [],
            "INVALID: no conclusion may be drawn: an arm has no session with an outcome.",
        ),
    ],
)
def test_the_verdict_is_told_in_one_sentence(control, treatment, told):
    assert headline(judged(control, treatment)) == told


def test_a_control_from_another_day_is_part_of_the_sentence():
    found = judged([6, 5, 7], [0, 0, 0], guards=GuardFacts(historical_control=True))

    assert headline(found).startswith("REDUCED: against a control from another day, 15% -> 0%")


def test_the_next_declared_look_is_told_instead_of_a_guess():
    found = judged([6] * 4, [4] * 4, design=Design(runs=8, looks=(4, 6)))

    assert "the next declared look is at 6 runs per arm" in headline(found)


@settings(deadline=None, max_examples=60)
@given(a=RUNS, b=RUNS, phi=st.floats(0.5, 8), df=st.integers(0, 20))
def test_no_output_says_gone_unless_the_bound_holds(a, b, phi, df):
    found = judged(a, b, sessions=10, design=Design(target=0.1), history=Dispersion(phi, df))
    report = document.build(found)

    told = terminal.render(report) + markdown.render(report) + str(as_json.as_json(report))
    if found.word is not Word.ELIMINATED:
        assert not re.search(r"\b(eliminated|fixed|solved|cured)\b", told, re.IGNORECASE)


def test_every_guard_has_its_words():
    names = {check.name for check in judged([6], [2]).checks}

    assert names == set(LABELS)
    void = (
        names
        - {n for n in names if n.startswith("heterogeneous")}
        - {"exposure_in_flight_s", "foreign_load", "other_failures"}
    )
    assert void == set(FAILURES) == set(REMEDIES)


def test_every_flag_has_its_words():
    elsewhere = {Flag.ELIMINATION_REFUTED, Flag.OBSERVER_ON, Flag.HISTORY_USED}

    assert set(FLAG_TOLD) == set(Flag) - elsewhere


def test_observers_and_history_are_named():
    found = judged(
        [6, 5, 7],
        [2, 2, 5],
        guards=GuardFacts(observers=("canary",)),
        history=Dispersion(1.3, 11, ("monday", "tuesday")),
    )

    assert beside(found) == [
        "observer on in both arms: canary",
        "history used: dispersion 1.30 on 11 df from stored A/A runs: monday, tuesday",
    ]
    nameless = replace(found, history=Dispersion(1.3, 11), observers=())
    assert beside(nameless) == ["history used: dispersion 1.30 on 11 df from stored A/A runs"]


def test_a_history_without_degrees_of_freedom_is_not_called_used():
    assert beside(judged([6, 5, 7], [2, 2, 5], history=Dispersion(1.0, 0))) == []


def test_every_guard_that_failed_is_told_with_what_was_found():
    differences = tuple(Difference(Kind.PATCH, name, "a", "b") for name in ("x", "y"))
    facts = GuardFacts(ArmFacts(client_lag_p99_ms=300.0), ArmFacts(), differences=differences)

    found = judged([6, 5, 7], [0, 0, 0], guards=facts)

    assert why(found) == [
        "more than one thing differs between the arms (patch x: a -> b; patch y: a -> b)",
        "the client could not keep up with its own load",
    ]
    assert what_next(found) == [
        "change one thing at a time, or declare a matrix",
        "measure when this machine is quiet, from another one, or with fewer sessions",
    ]


def test_an_undecided_trial_says_why_and_what_would_decide_it():
    found = judged([6, 5, 7], [2, 2, 5])

    assert why(found) == [
        "p = 0.14 is not below the level 0.05 of this look",
        "the 90% interval -16.7 to +1.3 points leaves ±7.5 points, so it is no proof of no"
        " effect either",
    ]
    assert what_next(found) == [
        "about 6 more runs per arm would decide if the difference is as seen",
        "`fleetctl aa` collects control runs whose dispersion lends power to every test",
    ]
    assert len(what_next(judged([6, 5], [2, 2], history=Dispersion(1.0, 11)))) == 1


def test_a_single_run_says_that_nothing_can_be_tested():
    assert why(judged([6], [2]))[0].startswith("with one run per arm and no A/A history")


def test_an_unequal_exposure_is_the_reason_when_it_decided():
    slow = GuardFacts(
        ArmFacts(exposure=Exposure(in_flight_s=10.0)),
        ArmFacts(exposure=Exposure(in_flight_s=15.0)),
    )

    told = why(judged(*SIXTEEN, guards=slow))

    assert told[-1] == "the arms were not exposed alike, so equal rates prove nothing"


@pytest.mark.parametrize(("a", "b", "arm_with_more"), [(10, 15, "treatment"), (15, 10, "control")])
@pytest.mark.parametrize("name", ["in_flight_s", "concurrency", "tokens", "rounds", "batch"])
def test_which_arm_was_exposed_more_and_by_how_much_is_told(name, a, b, arm_with_more):
    arms = [ArmFacts(exposure=Exposure(**{name: float(value)})) for value in (a, b)]

    found = judged(*SIXTEEN, guards=GuardFacts(*arms))

    unit = " s" if name == "in_flight_s" else ""
    told = f"the {arm_with_more} had 50% more, 15{unit} against 10{unit}"
    assert told in headline(found)
    assert any(line.startswith("exposure differs") and told in line for line in beside(found))


def test_a_trigger_that_one_arm_never_had_is_told_without_a_ratio():
    arms = [ArmFacts(exposure=Exposure(batch=value)) for value in (0.0, 4.0)]

    told = headline(judged(*SIXTEEN, guards=GuardFacts(*arms)))

    assert "the treatment had 4, the other arm none" in told


def test_load_of_others_is_a_note_and_voids_nothing():
    quiet, busy = ArmFacts(foreign_load=()), ArmFacts(foreign_load=("trials/2: 47 at once",) * 3)

    found = judged([6] * 8, [0] * 8, guards=GuardFacts(busy, quiet))

    assert found.word is Word.ELIMINATED
    (told,) = [line for line in beside(found) if line.startswith("foreign load")]
    assert "control: trials/2: 47 at once, and 2 more signs under Checks" in told
    assert beside(judged([6] * 8, [0] * 8, guards=GuardFacts(quiet, quiet))) == []


def failing(control, treatment):
    """Return guards with sessions of 8 runs by class that failed without being corrupt."""
    arms = (("control", 34, control), ("treatment", 40, treatment))
    return GuardFacts(
        *(
            ArmFacts(
                other_failures=OtherFailures(
                    arm(name, [sum(classes.values()) // 8] * 8, [sessions] * 8), classes
                )
            )
            for name, sessions, classes in arms
        )
    )


def test_a_fault_that_changes_its_face_is_not_called_reduced_and_the_sentence_says_why():
    found = judged([6] * 8, [0] * 8, guards=failing({"no_answer": 0}, {"no_answer": 16}))
    told = " ".join(terminal.render(document.build(found)).split())

    assert headline(found).startswith("INCONCLUSIVE: 15% -> 0% of sessions are bad")
    assert "(treatment: 16 of 320 (no_answer 16)): the fault may have changed its face" in told
    assert "no repair while another kind rises" in told
    assert "read the replies of the treatment's sessions" in told
    assert "more run" not in told.split("Next", 1)[1]


def test_sessions_that_failed_otherwise_stand_beside_a_verdict_that_holds():
    alike = judged([6] * 8, [0] * 8, guards=failing({"no_tool": 6, "error": 2}, {"no_tool": 8}))

    assert alike.word is Word.ELIMINATED
    (told,) = [line for line in beside(alike) if line.startswith("other failures")]
    assert "(control: 8 of 272 (no_tool 6, error 2); treatment: 8 of 320 (no_tool 8))" in told
    assert beside(judged([6] * 8, [0] * 8, guards=failing({"error": 8}, {"error": 0}))) == []


def test_bounds_have_the_same_numbers_and_name_in_headline_and_table():
    for arms in (([6, 5, 7], [2, 2, 5]), ([6] * 8, [0] * 8), ([6, 5, 7], [1, 1, 2])):
        found = judged(*arms)
        flat = " ".join(terminal.render(document.build(found)).split())
        table = flat.split("treatment, one-sided 95% bounds", 1)[1]
        for word, number in re.findall(r"(at least|at most) ([0-9.]+%)", headline(found)):
            assert f"{word} {number}" in table[:60]
        assert "one-sided 95% bound" in headline(found)


def drawn(name, bad):
    return ArmCounts(
        name, tuple(Run(x, 40, block=DrawnBlock(str(i // 2), 4)) for i, x in enumerate(bad))
    )


def test_an_undeclared_look_says_what_the_evalue_must_reach():
    without = judged([9] * 4, [0] * 4, design=Design(runs=20))
    with_blocks = judge(
        drawn("control", [9] * 4), drawn("treatment", [0] * 4), design=Design(runs=20)
    )

    assert why(without) == ["at an undeclared look the e-value must reach 20; there is none"]
    assert why(with_blocks) == ["at an undeclared look the e-value must reach 20; it is 16.9"]


def test_a_decided_trial_says_which_bound_was_compared_with_the_target():
    reduced, gone = judged([6, 5, 7], [0, 0, 0]), judged([6] * 8, [0] * 8)

    assert why(reduced)[-1].endswith("the upper one above the target 1%")
    assert why(gone)[-1].endswith("the upper one within the target 1%")
    assert what_next(reduced) == [
        "179 more clean sessions (5 runs) would bring the bound to the target"
    ]
    assert what_next(gone) == []
    assert len(why(judged([2, 2, 5], [12, 14, 13]))) == 1


def test_boots_are_called_boots():
    booted = [
        ArmCounts(name, tuple(Run(bad, 40, boot=f"{name}{i}") for i in range(8)))
        for name, bad in (("control", 6), ("treatment", 0))
    ]

    assert "; 0/320 in 8 boots)" in headline(judge(*booted))


def test_a_p_below_its_level_with_an_interval_that_holds_zero_says_why_nothing_is_shown():
    found = judged([4, 3, 3], [1, 0, 0])
    assert found.word is Word.INCONCLUSIVE
    told = " | ".join(why(found))
    assert "p = 0.0499 is below the level 0.05" in told
    assert "the 95% interval -17.4 to +0.04 points holds zero all the same" in told


@given(st.lists(st.sampled_from([0, 2, 6, 12]), min_size=2, max_size=8), st.integers(1, 12))
@settings(deadline=None, max_examples=40)
def test_what_is_still_needed_is_never_nothing(control, runs):
    found = judged(control, [0] * runs)
    if found.word is Word.REDUCED:
        assert " 0 more" not in headline(found) + " ".join(what_next(found))


def test_one_clean_boot_whose_bound_lies_below_the_target_asks_for_another_boot():
    found = judged([40, 42, 38], [0], sessions=400)
    assert (found.word, found.treatment.upper95 < 0.01) == (Word.REDUCED, True)
    assert "all clean sessions are of 1 run, which may be lucky as a whole" in headline(found)
    assert "not shown to be below" not in headline(found)
    assert what_next(found)[0].startswith("1 more clean run ")
