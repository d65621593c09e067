"""Every shared case by execution: bash runs what was edited with stub servers, systemd parses it.

The cases and the two programs that judge them lie in tests/cases/serve_scripts, or in the
folder that FLEETCTL_CASES_SERVE_SCRIPTS names (more cases exist than are kept here).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fleetctl.environment.local import edit_local_file, edit_local_unit, write_edits
from fleetctl.errors import EditRefused

FOLDER = Path(
    os.environ.get(
        "FLEETCTL_CASES_SERVE_SCRIPTS", Path(__file__).parents[1] / "cases" / "serve_scripts"
    )
)
STRICT = argparse.Namespace(strict_codes=True, allow_new_files=False, effective_only=False)


def load(name: str):
    """Import one of the judges; the second one imports the first by its name."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_shell = load("check_shell")
check_systemd = load("check_systemd")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ResourceWarning)  # the judges leave closing to Python
    SHELL_CASES = check_shell.load_cases(FOLDER / "shell_cases.json")
    SYSTEMD_CASES = check_shell.load_cases(FOLDER / "systemd_cases.json")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def edit_script_file(path: Path, edits: dict) -> None:
    try:
        write_edits(edit_local_file(Path(path), edits))
    except EditRefused as error:
        raise check_shell.Refusal(error.code) from error


def edit_unit(root: str, unit: str, edits: dict, scope: str) -> None:
    try:
        write_edits(edit_local_unit(Path(root), unit, edits, user=scope == "user"))
    except EditRefused as error:
        raise check_shell.Refusal(error.code) from error


@pytest.fixture(scope="session")
def systemd():
    """The real systemd where there is one; its parser judges beside the model."""
    oracle = check_systemd.Oracle()
    yield oracle if oracle.ok else None
    oracle.close()


@pytest.mark.parametrize("case", SHELL_CASES, ids=lambda case: case["id"])
def test_a_serve_script_gives_its_servers_what_was_asked(case):
    result = check_shell.check(case, edit_script_file, STRICT)
    assert result["status"] in ("PASS", "REFUSED"), "\n".join(result["why"])


@pytest.mark.parametrize("case", SYSTEMD_CASES, ids=lambda case: case["id"])
def test_a_unit_gives_its_server_what_was_asked(case, systemd):
    result = check_systemd.check(case, edit_unit, systemd)
    assert result["status"] in ("PASS", "REFUSED"), "\n".join(result["why"])


def test_the_judges_do_fail_an_editor_that_does_nothing():
    case = next(c for c in SHELL_CASES if c["id"] == "basic-01")
    assert check_shell.check(case, lambda path, edits: None, STRICT)["status"] == "FAIL"


@pytest.mark.slow
def test_the_command_line_passes_the_same_cases():
    """A few cases of each kind through a process: exit codes and JSON included."""
    run = "import sys; from fleetctl.cli.boundary import run_guarded as r; from fleetctl.cli.env "
    run += "import env; sys.exit(r(env))"
    command = f"{sys.executable} -c '{run}' edit {{file}} --edits {{edits_file}} --json"
    done = subprocess.run(
        [
            *(sys.executable, FOLDER / "check_shell.py", "--cmd", command, "--strict-codes"),
            *("--jobs", "1", "--only", "*-01,*-04,notcode-2*"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
