"""`fleetctl run`: who can't have the host hears so before the statistics are loaded."""

from __future__ import annotations

import subprocess
import sys

from fleetctl.errors import ExitCode
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
