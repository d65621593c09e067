"""A hint's command can be pasted: it looks where the process that gave it looked."""

from __future__ import annotations

import pytest
import typer

from fleetctl.cli.app import app
from fleetctl.cli.typed import PLACES, as_here, typed


@pytest.fixture
def called(monkeypatch):
    return lambda *words: monkeypatch.setattr("sys.argv", ["/bin/fleetctl", *words])


def test_every_command_that_can_be_told_where_to_look_is_told():
    commands = typer.main.get_command(app).commands
    for option, known in PLACES.items():
        takes = {
            name
            for name, command in commands.items()
            for inner in (command, *getattr(command, "commands", {}).values())
            if any(f"FLEETCTL_{option[2:].upper()}" == p.envvar for p in inner.params)
        }

        assert known == takes - {"env"}, option  # nobody is sent to `env` by a hint


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "`fleetctl resume R` goes on"),
        (["run", "x"], "`fleetctl resume R` goes on"),
        (["run", "x", "--runs", "my runs"], "`fleetctl resume R --runs 'my runs'` goes on"),
        (
            ["run", "--runs=r", "x", "--inventory", "i.toml"],
            "`fleetctl resume R --runs r --inventory i.toml` goes on",
        ),
    ],
)
def test_a_hint_names_the_places_that_were_named(called, words, told):
    called(*words)

    assert as_here("`fleetctl resume R` goes on") == told


def test_only_commands_that_take_a_place_get_it_and_none_gets_it_twice(called):
    called("status", "--inventory", "i.toml", "--runs", "r")
    text = "`fleetctl lab up`, `fleetctl results list`, `fleetctl unlock --inventory j`, `nc h 1`"

    assert as_here(text) == text.replace("list`", "list --runs r`")


@pytest.mark.parametrize("name", ["power", "repro", "nothing"])
def test_an_option_that_only_shares_its_name_with_a_place_is_none(called, name):
    called(name, "--runs", "3", "--inventory=4")

    assert as_here("`fleetctl aa` and `fleetctl status`") == "`fleetctl aa` and `fleetctl status`"


def test_who_asked_for_an_environment_is_sent_to_the_same_inventory(called):
    called("env", "lab-1", "--inventory", "i.toml")

    assert as_here("`fleetctl status`") == "`fleetctl status --inventory i.toml`"


def test_the_command_line_is_told_as_a_shell_takes_it(called):
    called("run", "my spec.toml", "--json")

    assert typed() == "fleetctl run 'my spec.toml' --json"


@pytest.mark.parametrize("password", ["secret", "sec@ret", "se:c@r@et", "@"])
def test_a_password_in_an_address_is_not_told_again(called, password):
    called("repro", "--url", f"http://me:{password}@h:1/v1", "--out", "a:b@c")

    assert typed() == "fleetctl repro --url 'http://me:***@h:1/v1' --out a:b@c"


@pytest.mark.parametrize("words", [[], ["status", "--runs", "r"]])
def test_what_is_no_command_stays_as_it_is(called, words):
    called(*words)

    assert as_here("`fleetctl  ` and `fleetctl --help`") == "`fleetctl  ` and `fleetctl --help`"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["aa", "my spec.toml", "--runs", "r"],
            "`fleetctl aa 'my spec.toml' --runs r` starts anew",
        ),
        (["resume", "R"], "`fleetctl aa` starts anew"),
    ],
)
def test_the_same_command_again_is_told_with_its_spec(called, words, told):
    called(*words)

    assert as_here("`fleetctl aa` starts anew") == told
