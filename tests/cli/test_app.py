"""What every `fleetctl` answers before any command."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import tomli

from fleetctl.cli.app import app, help_texts
from fleetctl.cli.boundary import run_guarded
from fleetctl.errors import ExitCode

# what does something by itself: commands, and groups that show their help
COMPLETE = {"", "status", "rollback", "results", "results list", "env", "lab"}
LACKING = sorted(
    name
    for name in (text.removeprefix("fleetctl").strip() for text in help_texts())
    if name not in COMPLETE and not name.startswith("lab ")
)


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "run", "no-such.toml"]])
def test_the_version_is_that_of_the_installed_package_and_ends_the_program(
    monkeypatch, capsys, arguments
):
    monkeypatch.setattr("sys.argv", ["fleetctl", *arguments])
    code = run_guarded(app)
    said = capsys.readouterr()
    assert (code, said.out, said.err) == (0, f"fleetctl {version('fleetctl')}\n", "")


def test_the_installed_version_is_the_project_s():
    project = tomli.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert version("fleetctl") == project["version"]


@pytest.mark.parametrize("group", ["", "lab", "results", "env"])
def test_no_sentence_in_a_list_of_commands_is_cut_on_a_screen_of_80_columns(
    monkeypatch, capsys, group
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["fleetctl", *filter(None, [group]), "--help"])

    assert run_guarded(app) == 0
    listed = capsys.readouterr().out.split("Commands:")[1].strip().splitlines()
    assert len(listed) >= 2
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("name", LACKING)
def test_a_command_that_lacks_what_it_works_on_is_a_wrong_command_line_and_shows_its_usage(
    monkeypatch, capsys, name
):
    monkeypatch.setattr("sys.argv", ["fleetctl", *name.split()])

    assert run_guarded(app) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"Usage: fleetctl {name}")
    assert "\nError: Missing " in said
