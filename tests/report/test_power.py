"""What a design can see, in words."""

import json

from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.power import Assumed, power_table
from fleetctl.report.power import as_json, brief, headline, render


def table(runs=3, **assumed):
    return power_table(0.15, Assumed(**assumed), runs=runs, target=0.05, minutes_per_run=4.0)


def test_three_runs_are_said_to_confirm_a_complete_fix_and_little_else():
    assert headline(table()) == (
        "3 runs of 40 sessions per arm can confirm a complete fix and little else:"
        " they see 15% -> 1.5% or less with 80% power."
    )


def test_a_design_that_sees_nothing_says_so():
    assert headline(table(rho=0.05)) == (
        "3 runs of 40 sessions per arm can't confirm even a complete fix of 15% with 80% power."
    )


def test_a_large_design_says_what_it_sees():
    assert headline(table(runs=12)) == (
        "12 runs of 40 sessions per arm see 15% -> 8.7% or less with 80% power."
    )


def test_the_text_shows_runs_time_and_what_is_assumed():
    told = render(table(rho=0.05))

    assert "15% -> 5% is seen with probability 18.7%; 80% needs 11 runs per arm" in told
    assert "24 minutes of host time" in told
    assert "correlation inside runs 0.05 (design effect 2.95, assumed)" in told
    assert "  7.5%         9      14        22" in told
    assert max(len(line) for line in told.splitlines()) <= 100


def test_a_history_is_named_and_too_many_runs_are_said_to_be_so():
    named = power_table(0.15, Assumed(history=Dispersion(1.0, 11, ("monday",))), runs=3)
    nameless = power_table(0.15, Assumed(history=Dispersion(1.0, 11)), runs=3, target=0.149)

    assert "A/A history with 11 df: monday" in render(named)
    assert "A/A history with 11 df: given" in render(nameless)
    assert "80% needs > 100 runs per arm" in render(nameless)
    assert "minutes" not in render(named)


def test_the_json_holds_the_whole_table_unrounded():
    value = json.loads(json.dumps(as_json(table(rho=0.05)), allow_nan=False))

    assert value["schema"] == "fleetctl.power/1"
    assert value["only_a_complete_fix"] is True
    assert value["runs_needed"][0] == {"treatment_rate": 0.075, "runs": [9, 14, 22]}
    assert value["design"]["host_minutes"] == 24.0


def test_in_brief_it_says_what_is_seen_what_is_needed_and_what_it_takes():
    lines = brief(table(rho=0.05, history=Dispersion(1.3, 11, ("monday",))))

    told = " ".join(lines)
    assert told.startswith("3 runs of 40 sessions per arm can confirm a complete fix and little")
    assert "Both arms take 24 minutes of host time." in told
    assert "Runs per arm for 80% power from 15%: 19 for 7.5%, 9 for 5%, 5 for 3%, 2 for 0%" in told
    assert "A/A history with 11 df: monday." in told
    assert lines[-1] == "`fleetctl power --baseline 15%` shows other designs."
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 100
