"""`fleetctl run`: who can't have the host hears so before the statistics are loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.analysis.judgement import Word
from fleetctl.cli.run import _exit_code, run
from fleetctl.errors import ExitCode, InputError
from tests.cli.test_plan import NOBODY, SPEC

ASK = """
import sys
from fleetctl.cli.app import app
from fleetctl.cli.boundary import run_guarded

for command in ("run", "aa"):
    sys.argv = ["fleetctl", command, "e.toml", "--inventory", "hosts.toml"]
    print(command, int(run_guarded(app)), "scipy" in sys.modules, "statsmodels" in sys.modules)
"""


def test_hosts_are_asked_before_the_statistics_are_loaded_which_take_long_on_a_busy_machine(
    tmp_path,
):
    (tmp_path / "e.toml").write_text(SPEC)
    (tmp_path / "hosts.toml").write_text(NOBODY)

    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    refused = int(ExitCode.REFUSED)
    assert done.stdout.splitlines() == [f"run {refused} False False", f"aa {refused} False False"]
    assert "away" in done.stderr


@pytest.mark.parametrize(
    ("word", "expected", "code", "said"),
    [
        (Word.REDUCED, None, ExitCode.OK, ""),
        (Word.INVALID, None, ExitCode.INVALID, ""),
        (Word.INCONCLUSIVE, None, ExitCode.INCONCLUSIVE, ""),
        (Word.INVALID, "invalid", ExitCode.OK, ""),
        (
            Word.REDUCED,
            "eliminated",
            ExitCode.UNEXPECTED_VERDICT,
            "unexpected verdict: reduced, expected: eliminated\n",
        ),
    ],
)
def test_a_run_that_ends_with_9_says_which_verdict_was_expected(capsys, word, expected, code, said):
    judged = SimpleNamespace(judgement=SimpleNamespace(word=word))

    assert _exit_code(judged, expected) is code
    assert capsys.readouterr().err == said


def test_a_verdict_that_does_not_exist_is_refused_before_anything_is_asked_with_the_nearest_one(
    tmp_path,
):
    (tmp_path / "e.toml").write_text(SPEC)

    with pytest.raises(InputError, match="did you mean `eliminated`"):
        run(tmp_path / "e.toml", expect="elliminatd", inventory=Path("/nowhere"))
