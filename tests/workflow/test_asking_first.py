"""What is looked at first: the workload's program, then the hosts, then the slow statistics."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleetctl.errors import ExitCode
from tests.cli.test_plan import NOBODY, SPEC
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

for words in sys.argv[1:]:
    *plan, kind = words.split()
    command = [*(plan or [kind]), f"{kind}.toml"]
    sys.argv = ["fleetctl", *command, "--inventory", "hosts.toml"]
    print(words, int(run_guarded(app)), "scipy" in sys.modules, "statsmodels" in sys.modules)
"""


@pytest.fixture
def ask(tmp_path):
    """Run commands, one after the other, on a host that does not answer."""

    def run(*commands: str, program: str = "true") -> subprocess.CompletedProcess[str]:
        matrix = TEXT.format(rules="", runs=1, trials="").replace('"fleet"', '"t"')
        texts = {
            "matrix": matrix,
            "bisect": SEARCH,
            "minimize": f"{SEARCH}[minimize]\n",
            "run": f"{SPEC}[workload]\n{SEARCH.partition('[workload]')[2]}",
        }
        texts["aa"] = texts["run"]
        for kind, text in texts.items():
            (tmp_path / f"{kind}.toml").write_text(text.replace('"true"', f'"{program}"'))
        (tmp_path / "hosts.toml").write_text(NOBODY)
        argv = [sys.executable, "-c", ASK, *commands]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_whoever_can_t_have_the_hosts_of_a_search_or_a_matrix_hears_so_before_the_statistics(ask):
    kinds = ("matrix", "bisect", "minimize")

    done = ask(*kinds, *(f"plan {kind}" for kind in kinds))

    told = [line.rsplit(" ", 3) for line in done.stdout.splitlines()]
    refused = [str(int(ExitCode.REFUSED)), "False", "False"]
    assert [one[1:] for one in told] == [refused] * 6, (done.stdout, done.stderr)
    assert done.stderr.count("error: cannot reach away") == 6


@pytest.mark.parametrize("program", ["no-such-program", "/etc/passwd"])
def test_a_program_that_is_not_here_is_told_before_any_host_is_asked(ask, program):
    done = ask("run", "aa", "matrix", "bisect", "minimize", program=program)

    codes = [line.split(" ")[1] for line in done.stdout.splitlines()]
    assert codes == [str(int(ExitCode.REFUSED))] * 5, (done.stdout, done.stderr)
    assert done.stderr.count(f"the workload's program can't be started: {program}") == 5
    assert "away" not in done.stderr
