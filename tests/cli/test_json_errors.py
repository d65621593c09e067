"""With `--json` every command answers with exactly one document, also when it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import typer

from fleetctl.cli import matrix, search
from fleetctl.cli.app import app
from fleetctl.cli.boundary import run_guarded
from fleetctl.errors import ExitCode, FleetError, RestoreConflict, StoreError
from fleetctl.store.run_folder import RunFolder

# a command line of each command that is refused before any host is asked
REFUSED = {
    "check": ["absent.toml"],
    "plan": ["absent.toml"],
    "run": ["absent.toml"],
    "resume": ["nothing"],
    "matrix": ["absent.toml"],
    "bisect": ["absent.toml"],
    "minimize": ["absent.toml"],
    "aa": ["absent.toml"],
    "status": ["--inventory", "absent.toml"],
    "rollback": ["--inventory", "absent.toml"],
    "unlock": ["--id", "x", "--inventory", "absent.toml"],
    "forget": ["h", "--inventory", "absent.toml"],
    "repro": ["--url", "http://127.0.0.1:1", "--cache-mode", "odd"],
    "classify": ["absent", "nowhere"],
    "reclassify": ["absent"],
    "judge": ["--control", "x", "--treatment", "1/2"],
    "power": ["--baseline", "0%"],
    "results list": ["--runs", "file"],
    "results show": ["nothing"],
    "lab up": ["--dir", "file/lab"],
    "lab status": [],
    "env show": ["h", "--inventory", "absent.toml"],
    "env edit": ["A=1"],
}


def commands(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that has `--json`."""
    options = [option for parameter in command.params for option in parameter.opts]
    if "--json" in options:
        yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


@pytest.fixture
def fleetctl(monkeypatch, capsys, tmp_path):
    """Run `fleetctl ...` in this process; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fleetctl", *words])
        code = run_guarded(app)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_every_command_with_json_is_tried_here():
    assert {" ".join(words) for words in commands(typer.main.get_command(app))} == set(REFUSED)


@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"lab status"}))
def test_a_refusal_is_one_document_with_the_same_exit_code(fleetctl, name):
    code, out, told = fleetctl(*name.split(), *REFUSED[name])
    assert (code, "error:" in told) == (ExitCode.REFUSED, True)

    with_json, out, err = fleetctl(*name.split(), *REFUSED[name], "--json")

    error = json.loads(out)["error"]
    assert (with_json, error["exit_code"]) == (code, code)
    assert {"kind", "what", "why", "next_step"} < error.keys()
    assert error["what"] in err
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_wrong_option_is_one_document_too(fleetctl, name):
    code, out, err = fleetctl(*name.split(), *REFUSED[name], "--jsn", "--json")

    error = json.loads(out)["error"]
    assert (code, error["exit_code"], error["kind"]) == (2, 2, "UsageError")
    assert "--jsn" in error["what"]
    assert error["next_step"] == f"fleetctl {name} --help"
    assert "Usage:" in err


@pytest.mark.parametrize(
    ("raised", "kind", "code"),
    [
        (KeyboardInterrupt(), "Interrupted", ExitCode.INTERRUPTED),
        (ZeroDivisionError("oops"), "InternalError", ExitCode.INTERNAL),
        (StoreError("full", why="", next_step=""), "StoreError", ExitCode.REFUSED),
        (FleetError("x", why="y", next_step="z", exit_code=ExitCode.CONFLICT), "FleetError", 6),
    ],
)
def test_every_kind_of_end_is_a_document(monkeypatch, capsys, raised, kind, code):
    def broken(**_):
        raise raised

    monkeypatch.setattr("sys.argv", ["fleetctl", "status", "--json"])

    assert run_guarded(broken) == code
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)


def test_an_argument_called_json_asks_for_nothing(monkeypatch, capsys):
    def broken(**_):
        raise FleetError("x", why="y", next_step="z")

    monkeypatch.setattr("sys.argv", ["fleetctl", "lab", "ssh", "a", "--", "--json"])

    run_guarded(broken)

    assert capsys.readouterr().out == ""


def test_a_report_and_the_error_after_it_are_one_document(tmp_path, monkeypatch, capsys):
    """A matrix that measured, and whose host holds a conflict, has both to say."""
    folder = RunFolder.create(tmp_path, "r", {"kind": "matrix"})
    folder.write_json("report.json", {"cells": []})
    monkeypatch.setattr("fleetctl.workflow.matrix_report.write_report", lambda *_: "the report")
    conflict = RestoreConflict("left alone", why="somebody changed it", next_step="look")
    end = type("End", (), {"folder": folder, "error": conflict})()
    monkeypatch.setattr("sys.argv", ["fleetctl", "matrix", "m.toml", "--json"])

    code = run_guarded(lambda **_: matrix._finish(None, end, tmp_path, 0.0, as_json=True))

    told = capsys.readouterr()
    found = json.loads(told.out)
    assert (code, found["cells"], found["error"]["kind"]) == (6, [], "RestoreConflict")
    assert "error: left alone" in told.err


def test_a_searchs_report_that_can_not_be_kept_is_printed_with_its_error(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["fleetctl", "bisect", "b.toml", "--json"])
    (tmp_path / "file").write_text("")

    code = run_guarded(
        lambda **_: search._tell(tmp_path / "file", {"ending": "culprit"}, "text", as_json=True)
    )

    found = json.loads(capsys.readouterr().out)
    assert (code, found["ending"], found["error"]["kind"]) == (4, "culprit", "StoreError")
