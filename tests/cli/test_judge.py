"""`fleetctl judge` and `fleetctl power`, as a person types them."""

from __future__ import annotations

import json
from typing import get_args, get_type_hints

import pytest
import typer

from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import AaRecord
from fleetctl.cli.app import app
from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.judge import arm_of, judge, power, share_of
from fleetctl.errors import ExitCode, InputError
from fleetctl.store.history import AA_FILE, History

CONTROL = ("--control", "6/40,5/40,7/40")
STORY = (*CONTROL, "--treatment", "2/40,2/40,5/40")


@pytest.fixture
def fleetctl(monkeypatch, capsys):
    """Run the command line and return its exit code, stdout and stderr."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(judge)
    app.command()(power)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["fleetctl", *arguments])
        code = run_guarded(app)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def history(tmp_path):
    """Write an A/A history and return its path."""

    def write(*records):
        store = History(tmp_path)
        (tmp_path / AA_FILE).touch()
        for each in records:
            store.add_aa(each)
        return str(tmp_path / AA_FILE)

    return write


def record(name, bad, host_class="h200"):
    return AaRecord(name, host_class, "w", arm(name, bad, [40] * len(bad)))


def test_the_story_is_inconclusive_with_elimination_refuted_and_the_runs_to_come(fleetctl):
    code, out, _ = fleetctl("judge", *STORY)

    assert code == 7
    first = " ".join(out.split("\n\n")[0].split())
    assert first.startswith("INCONCLUSIVE: not decided whether 15% -> 7.5%")
    assert "elimination is refuted (at least 3.1% are still bad, one-sided 95% bound)" in first
    assert "about 6 more runs per arm" in first


def test_the_story_as_json(fleetctl):
    code, out, _ = fleetctl("judge", *STORY, "--json")

    value = json.loads(out)
    assert code == 7
    assert (value["verdict"], value["elimination_refuted"]) == ("inconclusive", True)
    assert value["more_runs_per_arm"] == 6


@pytest.mark.parametrize(
    ("treatment", "code"),
    [("0/40,0/40,0/40", 0), ("20/40,21/40,20/40", 0), ("2/40,2/40,5/40", 7), ("0/0", 8)],
)
def test_the_exit_code_says_whether_it_was_decided(fleetctl, treatment, code):
    assert fleetctl("judge", *CONTROL, "--treatment", treatment)[0] == code


@pytest.mark.parametrize(("expected", "code"), [("inconclusive", 0), ("reduced", 9)])
def test_an_expected_verdict_decides_the_exit_code(fleetctl, expected, code):
    found, _, err = fleetctl("judge", *STORY, "--expect", expected)

    assert found == code
    assert (err == "") == (code == 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*CONTROL, "--treatment", "2/40,41/40"), "`--treatment, run 2` is `41/40`"),
        ((*CONTROL, "--treatment", "x/40"), "`--treatment, run 1` is `x/40`"),
        ((*CONTROL, "--treatment", "5"), "`--treatment, run 1` is `5`"),
        ((*CONTROL, "--treatment", "2/40,"), "`--treatment, run 2` is ``"),
        ((*CONTROL, "--treatment", "-1/40"), "`--treatment, run 1` is `-1/40`"),
        ((*CONTROL, "--treatment", ""), "`--treatment` has no run"),
        ((*STORY, "--target", "much"), "`--target` is `much`"),
        ((*STORY, "--target", "0"), "`target` is 0"),
        ((*STORY, "--margin", "200%"), "`--margin` is `200%`"),
        ((*STORY, "--looks", "4,x"), "`--looks` is `4,x`"),
        ((*STORY, "--looks", "6,4"), "the looks are 6, 4"),
        ((*STORY, "--expect", "reducd"), "did you mean `reduced`?"),
        ((*STORY, "--history", "/nowhere/aa.json"), "`--history` /nowhere/aa.json can't be read"),
    ],
)
def test_bad_input_is_refused_with_its_place(fleetctl, arguments, told):
    code, out, err = fleetctl("judge", *arguments)

    assert code == 3
    assert told in err
    assert "hint: " in err
    assert out == ""


def test_design_options_reach_the_verdict(fleetctl):
    options = ("--target", "10%", "--margin", "0.2", "--alpha", "0.1", "--looks", "3,6")

    _, out, _ = fleetctl("judge", *STORY, *options, "--json")

    design = json.loads(out)["design"]
    assert (design["target"], design["margin"], design["alpha"]) == (0.1, 0.2, 0.1)
    assert design["looks"] == [3, 6]


@pytest.mark.parametrize(
    ("options", "verdict", "flags"),
    [
        (("--observer-on", "treatment:clones"), "reduced", ["perturbing_observer"]),
        (("--observer-on", "control:clones"), "reduced", ["perturbing_observer"]),
        (("--observer-on", "clones"), "reduced", ["observer_on"]),
        (("--changed", "fp8"), "reduced", []),
        (("--changed", "fp8", "--observer-on", "treatment:clones"), "invalid", ["confounded"]),
    ],
)
def test_observers_and_changes_are_taken_into_account(fleetctl, options, verdict, flags):
    clones = (*CONTROL, "--treatment", "1/40,1/40,2/40")

    _, out, _ = fleetctl("judge", *clones, *options, "--json")

    value = json.loads(out)
    assert (value["verdict"], value["flags"]) == (verdict, flags)


def test_a_history_lends_its_dispersion_and_is_named(fleetctl, history):
    path = history(record("monday", [3, 5, 4, 6]), record("tuesday", [6, 5]))

    _, out, _ = fleetctl("judge", *STORY, "--history", path)

    assert "on 4 df from stored A/A runs: monday, tuesday" in out


def test_a_history_of_several_hosts_is_used_record_by_record(fleetctl, history):
    path = history(record("a", [3, 5, 4]), record("b", [9, 1], host_class="a100"))

    _, out, _ = fleetctl("judge", *STORY, "--history", path, "--record", "a")
    code, _, err = fleetctl("judge", *STORY, "--history", path, "--record", "c")

    assert "on 2 df from stored A/A runs: a" in out
    assert code == 3
    assert "has no record c" in err
    assert "it has a, b" in err


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([record("a", [3, 5]), record("b", [3, 5], host_class="a100")], "mixes host classes"),
        ([record("a", [3])], "tells nothing about dispersion"),
        ([], "tells nothing about dispersion"),
    ],
)
def test_a_history_that_can_not_be_used_is_refused(fleetctl, history, records, told):
    code, _, err = fleetctl("judge", *STORY, "--history", history(*records))

    assert code == 3
    assert told in err


def test_power_says_what_three_runs_can_see(fleetctl):
    code, out, _ = fleetctl(
        "power", "--baseline", "15%", "--target", "5%", "--icc", "0.05", "--minutes-per-run", "4"
    )

    assert code == 0
    assert "can't confirm even a complete fix" in out
    assert "80% needs 11 runs per arm" in out
    assert "24 minutes of host time" in out


def test_power_takes_the_correlation_from_history_and_prints_json(fleetctl, history):
    path = history(record("monday", [0, 12, 3, 9]))

    _, out, _ = fleetctl("power", "--baseline", "0.15", "--history", path, "--json")

    value = json.loads(out)
    assert value["assumed"]["rho"] > 0.1
    assert value["assumed"]["history"]["records"] == ["monday"]


@pytest.mark.parametrize("baseline", ["0", "100%"])
def test_power_needs_a_control_that_fails_sometimes(fleetctl, baseline):
    code, _, err = fleetctl("power", "--baseline", baseline)

    assert code == 3
    assert "can't be compared" in err


@pytest.mark.parametrize("sessions", ["10001", "9" * 14, "9" * 5000])
def test_more_sessions_than_an_exact_test_can_take_are_refused_at_once(sessions):
    with pytest.raises(InputError, match="--control, run 1"):
        arm_of("control", f"1/{sessions}")


def float_options():
    """Yield each command with its options that take a float."""
    for command in app.registered_commands:
        for name, kind in get_type_hints(command.callback).items():
            if float in (kind, *get_args(kind)):
                yield command.callback.__name__, f"--{name.replace('_', '-')}"


@pytest.mark.parametrize("odd", ["inf", "-inf", "nan", "1e999"])
@pytest.mark.parametrize(("command", "option"), list(float_options()))
def test_no_option_takes_a_number_that_is_not_finite(command, option, odd, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fleetctl", command, f"{option}={odd}"])

    assert run_guarded(app) == ExitCode.USAGE
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


def test_the_options_that_take_a_float_are_found():
    assert {option for _, option in float_options()} >= {"--icc", "--minutes-per-run", "--think"}


@pytest.mark.parametrize(("text", "hint"), [("15", "15%"), ("100", "100%"), ("0", "15% or 0.15")])
def test_a_share_written_as_a_number_of_percent_is_told_how_it_is_written(text, hint):
    with pytest.raises(InputError) as caught:
        share_of("--baseline", text, is_open=True)

    assert caught.value.next_step == f"write it like {hint}"
