"""Errors become one message and a documented exit code; help stays light."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from fleetctl.cli.boundary import run_guarded
from fleetctl.errors import ExitCode, FleetError, NotRestored

# pydantic is not among them: typer itself imports it
WRITE = """
import sys
from pathlib import Path
from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.data import print_lines
sys.exit(run_guarded(lambda **_: print_lines(["x"])))
"""
HEAVY = {"paramiko", "fabric", "scipy", "numpy", "statsmodels", "aiohttp", "torch"}


def raising(error):
    def app(**_):
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FleetError("x", why="y", next_step="z"), ExitCode.REFUSED),
        (NotRestored("x", why="y", next_step="z"), ExitCode.FAILED_NOT_RESTORED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (typer.Exit(7), ExitCode.INCONCLUSIVE),
        (typer.BadParameter("no"), ExitCode.USAGE),
        (ZeroDivisionError(), ExitCode.INTERNAL),
    ],
)
def test_each_kind_of_end_has_its_exit_code(error, code):
    assert run_guarded(raising(error)) == code


def test_an_error_says_what_why_and_the_next_step_on_stderr(capsys):
    run_guarded(raising(FleetError("it broke", why="because", next_step="mend it")))

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == ["error: it broke", "  why: because", "", "hint: mend it"]


def test_a_bug_is_called_a_bug_with_its_traceback(capsys):
    run_guarded(raising(ZeroDivisionError("oops")))

    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "bug in fleetctl" in printed


def test_help_imports_nothing_heavy():
    script = (
        "import json, sys\n"
        "from fleetctl.cli.app import help_texts\n"
        "texts = help_texts()\n"
        "print(json.dumps([len(texts), sorted({name.split('.')[0] for name in sys.modules})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    count, modules = json.loads(done.stdout)

    assert count > 20
    assert HEAVY & set(modules) == set()


def test_every_command_and_option_has_help():
    from fleetctl.cli.app import app

    def walk(command, name):
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", "x") or parameter.name == "help", (
                name,
                parameter.name,
            )
        for inner_name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {inner_name}")

    walk(typer.main.get_command(app), "fleetctl")


@pytest.mark.parametrize("gone", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("words", "code"),
    [(["--help"], ExitCode.OK), (["results", "list"], ExitCode.OK), (["nope"], ExitCode.USAGE)],
    ids=["help", "data", "usage"],
)
def test_a_reader_that_left_changes_no_exit_code_and_leaves_no_traceback(
    tmp_path, words, code, gone
):
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, gone: writing}
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", *words], cwd=tmp_path, check=False, **streams
    )
    os.close(writing)

    assert done.returncode == code
    assert b"Traceback" not in (done.stderr or b"")


def test_an_answer_that_can_not_be_written_is_no_success():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", WRITE], stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert done.returncode == ExitCode.INTERNAL
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_ctrl_c_in_a_command_is_said_and_is_one_document_with_json(capsys, monkeypatch):
    app = typer.Typer()

    @app.command()
    def go(*, json: bool = False) -> None:
        raise KeyboardInterrupt

    for words in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["fleetctl", *words])

        assert run_guarded(app) == ExitCode.INTERRUPTED

        told = capsys.readouterr()
        assert told.err.splitlines()[0] == "interrupted"
        assert "starts it again" in told.err
        assert told.out.count("Interrupted") == len(words)
