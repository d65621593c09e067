"""Searches and matrices ask their hosts before the statistics are loaded, which take long."""

from __future__ import annotations

import subprocess
import sys

from fleetctl.errors import ExitCode
from tests.cli.test_plan import NOBODY
from tests.workflow.matrices import TEXT

CHANGE = '[[change]]\nname = "{0}"\nenv = {{ {0} = "1" }}\n'
SEARCH = (
    '[experiment]\nname = "s"\ntarget = "t"\n'
    f"{CHANGE.format('A')}{CHANGE.format('B')}"
    '[workload]\nkind = "command"\nargv = ["true"]\n'
)
ASK = """
import sys
from fleetctl.cli.app import app
from fleetctl.cli.boundary import run_guarded

for words in ("matrix", "bisect", "minimize", "plan matrix", "plan bisect", "plan minimize"):
    *plan, kind = words.split()
    command = [*(plan or [kind]), f"{kind}.toml"]
    sys.argv = ["fleetctl", *command, "--inventory", "hosts.toml"]
    print(words, int(run_guarded(app)), "scipy" in sys.modules, "statsmodels" in sys.modules)
"""


def test_whoever_can_t_have_the_hosts_of_a_search_or_a_matrix_hears_so_before_the_statistics(
    tmp_path,
):
    matrix = TEXT.format(rules="", runs=1, trials="").replace('"fleet"', '"t"')
    (tmp_path / "matrix.toml").write_text(matrix)
    (tmp_path / "bisect.toml").write_text(SEARCH)
    (tmp_path / "minimize.toml").write_text(f"{SEARCH}[minimize]\n")
    (tmp_path / "hosts.toml").write_text(NOBODY)

    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    told = [line.rsplit(" ", 3) for line in done.stdout.splitlines()]
    refused = [str(int(ExitCode.REFUSED)), "False", "False"]
    assert [one[1:] for one in told] == [refused] * 6, (done.stdout, done.stderr)
    assert done.stderr.count("error: cannot reach away") == 6
