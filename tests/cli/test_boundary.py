"""Errors become one message and a documented exit code; help stays light."""

import json
import subprocess
import sys

import pytest
import typer

from fleetctl.cli.boundary import run_guarded
from fleetctl.errors import ExitCode, FleetError, NotRestored

# pydantic is not among them: typer itself imports it
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
