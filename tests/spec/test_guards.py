"""One variable at a time, arms that alternate, and what is said when somebody insists."""

from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.arms import arms_of
from fleetctl.spec.guards import check_design
from fleetctl.spec.loader import load_experiment


def guards(tmp_path: Path, body: str, forced: str = ""):
    path = tmp_path / "e.toml"
    path.write_text(f'[experiment]\nname = "e"\ntarget = "t"\n{forced}\n{body}')
    experiment = load_experiment(path)
    return check_design(experiment, arms_of(experiment, path))


TWO = '[env]\nA = "1"\nB = "1"\n[control]\nenv = { A = "0", B = "0" }\n'


def test_one_difference_is_an_experiment(tmp_path):
    found = guards(tmp_path, '[env]\nA = "1"\nB = "1"\n[control]\nenv = { A = "0", B = "1" }\n')

    assert [str(d) for d in found.differences] == ['flag A: "0" -> "1"']
    assert found.labels == ()


def test_two_differences_are_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="more than one thing") as caught:
        guards(tmp_path, TWO)
    assert "flag A" in caught.value.why
    assert "flag B" in caught.value.why


def test_who_insists_is_labelled(tmp_path):
    assert guards(tmp_path, TWO, 'forced = ["confounded"]').labels == ("confounded",)


def test_blocks_are_refused_unless_forced(tmp_path):
    body = '[trials]\norder = "blocks"\n[env]\nA = "1"\n'
    with pytest.raises(InputError, match="in blocks"):
        guards(tmp_path, body)
    assert guards(tmp_path, body, 'forced = ["blocks"]').labels == ("blocks",)


def test_equal_arms_are_said_to_be_an_a_a_experiment(tmp_path):
    assert "A/A" in guards(tmp_path, "").warnings[0]


def test_a_control_of_another_day_is_labelled(tmp_path):
    found = guards(
        tmp_path, '[env]\nA = "1"\n[control]\nhistory = { corrupted = 18, sessions = 120 }\n'
    )

    assert found.labels == ("historical_control",)
    assert "whatever changed since counts as the treatment" in found.warnings[0]


def test_a_sequential_run_draws_its_order_and_refuses_another(tmp_path):
    body = '[trials]\nruns = 6\nstop = "sequential"\nlooks = [4]\n{}\n[env]\nA = "1"\n'
    path = tmp_path / "e.toml"
    head = '[experiment]\nname = "e"\ntarget = "t"\n'
    path.write_text(head + body.format(""))

    assert load_experiment(path).trials.order == "randomised"
    path.write_text(head + body.format('order = "interleaved"'))
    with pytest.raises(InputError) as caught:
        load_experiment(path)
    assert 'needs order = "randomised"' in caught.value.why


def test_an_observer_that_differs_is_named(tmp_path):
    found = guards(tmp_path, '[env]\nA = "1"\n[[observer]]\nflag = "A"\n')

    assert found.differences[0].observer
    assert "may also disturb" in found.warnings[0]
