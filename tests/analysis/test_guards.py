"""Facts that forbid a conclusion."""

from dataclasses import replace

import pytest

from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.guards import ArmFacts, Exposure, GuardFacts, fact_checks

PATCH = Difference(Kind.PATCH, "indexer", "aa", "bb")
FLAG = Difference(Kind.FLAG, "BF16", "1", "0")
OBSERVER = Difference(Kind.OBSERVER, "clones", "off", "on")
MIXED = Difference(Kind.MIXED, "GE_DIFF", "0", "0 or 1")


def counts(name, *bad, infra=0):
    return ArmCounts(name, tuple(Run(x, 40, infra=infra) for x in bad))


CONTROL, TREATMENT = counts("control", 6, 5, 7), counts("treatment", 2, 2, 5)


def check(name, facts, control=CONTROL, treatment=TREATMENT, **more):
    (found,) = [c for c in fact_checks(control, treatment, facts, **more) if c.name == name]
    return found


def test_what_nobody_looked_at_is_unknown_and_never_passed():
    control = ArmCounts("control", (Run(6, 40),))

    checks = fact_checks(control, control, GuardFacts())

    assert {c.name for c in checks if c.passed is not None} == {"empty_arm"}


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("not_proven", GuardFacts(ArmFacts(unproven=("flag of pid 7",)), ArmFacts(unproven=()))),
        ("not_proven", GuardFacts(differences=(MIXED,))),
        ("disturbed", GuardFacts(ArmFacts(disturbances=()), ArmFacts(disturbances=("Xid 79",)))),
        ("confounded", GuardFacts(differences=(PATCH, FLAG))),
        ("confounded", GuardFacts(differences=(PATCH, OBSERVER))),
        ("perturbing_observer", GuardFacts(observers=("clones",), perturbing=("clones",))),
        ("order_deviates", GuardFacts(order_deviation="run 3 was the control's")),
        ("blocked_order", GuardFacts(orders=("ABBA", "AAABBB"))),
        (
            "not_exercised",
            GuardFacts(ArmFacts(missed_triggers=()), ArmFacts(missed_triggers=("batch 3 of 8",))),
        ),
        ("client_lag", GuardFacts(ArmFacts(client_lag_p99_ms=101.0))),
        ("concurrency", GuardFacts(treatment=ArmFacts(achieved_concurrency=0.94))),
    ],
)
def test_a_fact_that_forbids_a_conclusion_fails_its_check(name, facts):
    assert check(name, facts).is_void


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("not_proven", GuardFacts(ArmFacts(unproven=()), ArmFacts(unproven=()))),
        ("confounded", GuardFacts(differences=(PATCH,))),
        ("confounded", GuardFacts(differences=())),
        ("confounded", GuardFacts(differences=(OBSERVER, MIXED))),
        ("perturbing_observer", GuardFacts(observers=("canary",), perturbing=("clones",))),
        ("order_deviates", GuardFacts(order_deviation="")),
        ("blocked_order", GuardFacts(orders=("ABBA",))),
        ("client_lag", GuardFacts(ArmFacts(client_lag_p99_ms=100.0))),
        ("concurrency", GuardFacts(ArmFacts(achieved_concurrency=0.95))),
    ],
)
def test_a_fact_within_its_limit_passes(name, facts):
    assert check(name, facts).passed is True


@pytest.mark.parametrize("forced", ["confounded", "blocks"])
def test_a_forced_guard_still_fails_but_voids_nothing(forced):
    facts = GuardFacts(differences=(PATCH, FLAG), orders=("AAABBB",), forced=frozenset({forced}))
    name = {"confounded": "confounded", "blocks": "blocked_order"}[forced]

    found = check(name, facts)

    assert found.passed is False
    assert not found.is_void


def test_a_factorial_design_may_change_several_things():
    assert check("confounded", GuardFacts(differences=(PATCH, FLAG)), factorial=True).passed


def test_the_facts_of_both_arms_say_whose_they_are():
    facts = GuardFacts(ArmFacts(disturbances=("OOM",)), ArmFacts(disturbances=("Xid 79",)))

    assert check("disturbed", facts).facts == ("control: OOM", "treatment: Xid 79")


@pytest.mark.parametrize(
    ("lost", "failing"), [(0, []), (2, []), (4, ["infra", "infra_difference"])]
)
def test_lost_sessions_void_above_five_percent_or_five_points(lost, failing):
    lossy = counts("treatment", 2, 2, 5, infra=lost)

    checks = fact_checks(CONTROL, lossy, GuardFacts())

    assert [c.name for c in checks if c.is_void] == failing


def test_arms_that_lost_everything_and_arms_without_runs_have_known_losses():
    gone = ArmCounts("treatment", (Run(0, 0, infra=40),))

    assert check("infra", GuardFacts(), treatment=gone).value == 1.0
    assert check("infra", GuardFacts(), treatment=ArmCounts("treatment", ())).value == 0.0


def exposed(**treatment):
    full = {"concurrency": 38.0, "tokens": 500.0, "rounds": 3.0, "in_flight_s": 10.0, "batch": 38.0}
    return GuardFacts(
        ArmFacts(exposure=Exposure(**full)), ArmFacts(exposure=Exposure(**(full | treatment)))
    )


@pytest.mark.parametrize("name", ["concurrency", "tokens", "rounds", "batch"])
def test_a_cleaner_arm_that_was_exposed_less_voids_the_comparison(name):
    thinned = exposed(**{name: 0.8 * getattr(exposed().control.exposure, name)})

    assert check(f"exposure_{name}", thinned).is_void
    assert check(f"exposure_{name}", thinned, treatment=CONTROL).is_void
    assert check(f"exposure_{name}", exposed()).passed


def test_a_dirtier_arm_may_end_its_sessions_earlier():
    clean_longer = exposed(rounds=3.6)
    dirty_shorter = exposed(rounds=2.4)

    assert check("exposure_rounds", clean_longer).passed is False
    assert not check("exposure_rounds", clean_longer).is_void
    assert not check("exposure_rounds", dirty_shorter, TREATMENT, CONTROL).is_void


def test_a_slower_service_is_told_but_voids_nothing():
    slower = check("exposure_in_flight_s", exposed(in_flight_s=13.0))

    assert slower.passed is False
    assert slower.value == pytest.approx(0.3)
    assert slower.facts == ("the treatment had 30% more, 13 s against 10 s",)
    assert not slower.is_void


def test_an_arm_without_any_exposure_differs_from_one_with_some():
    assert check("exposure_tokens", exposed(tokens=0.0)).value == 1.0
    none = replace(exposed(tokens=0.0), control=ArmFacts(exposure=Exposure(tokens=0.0)))
    assert check("exposure_tokens", none).value == 0.0


def test_an_observer_is_the_factor_only_when_nothing_else_differs():
    assert GuardFacts(differences=(OBSERVER,)).sole_observer == "clones"
    assert GuardFacts(differences=(OBSERVER, PATCH)).sole_observer is None
    assert GuardFacts(differences=(PATCH,)).sole_observer is None
    assert GuardFacts().sole_observer is None
