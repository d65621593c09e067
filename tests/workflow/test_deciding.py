"""A design that can't decide says so before it costs a night of host time."""

from __future__ import annotations

import pytest

from fleetctl.analysis.history import Dispersion
from fleetctl.workflow.deciding import undecidable
from fleetctl.workflow.experiment import deal, read
from tests.cli.test_plan import SPEC

NEVER = "this design can never decide"
UNDECLARED = "a look that was not declared, as after a stop, can never decide"


def told(tmp_path, rest, sites=("a",), history=None):
    path = tmp_path / "e.toml"
    path.write_text(SPEC.replace("[trials]\nruns = 3\n", "") + rest)
    asked = read(path)
    return undecidable(asked.experiment, deal(sites, asked), history)


@pytest.mark.parametrize(
    ("rest", "starts"),
    [
        ("[trials]\nruns = 1\n", [NEVER]),
        ("[trials]\nruns = 1\n[control]\nhistory = { corrupted = 9, sessions = 60 }\n", [NEVER]),
        (
            '[trials]\nruns = 2\n[workload]\nkind = "command"\nargv = ["x"]\nsessions = 1\n',
            [NEVER],
        ),
        ("[trials]\nruns = 2\n", []),
        ("[trials]\nruns = 2\nboot_per_run = false\n", []),
        ('[trials]\nruns = 2\nstop = "sequential"\nlooks = [2]\n', [UNDECLARED]),
        (
            '[trials]\nruns = 2\nstop = "sequential"\nlooks = [1, 2]\n',
            ["looks at 1 of the 2 runs per arm can never decide", UNDECLARED],
        ),
        ('[trials]\nruns = 8\nstop = "sequential"\nlooks = [4, 6, 8]\n', []),
        ('[trials]\nruns = 3\n[verdict]\nexpect = "eliminated"\n', ["`expect = "]),
        ('[trials]\nruns = 8\n[verdict]\nexpect = "eliminated"\n', []),
        ('[trials]\nruns = 3\n[verdict]\nexpect = "worse"\n', []),
        ('[trials]\nruns = 3\n[verdict]\nexpect = "reduced"\n', []),
        ('[trials]\nruns = 3\n[verdict]\nexpect = "no_effect"\n', []),
        ('[trials]\nruns = 3\n[verdict]\nexpect = "inconclusive"\n', []),
    ],
)
def test_what_no_outcome_can_decide_is_told_and_nothing_else(tmp_path, rest, starts):
    found = told(tmp_path, rest)

    assert len(found) == len(starts), found
    assert all(line.startswith(start) for line, start in zip(found, starts, strict=True))


def test_the_e_value_is_told_as_it_would_be_however_many_sites_share_the_runs(tmp_path):
    rest = '[trials]\nruns = 4\nstop = "sequential"\nlooks = [4]\n'

    (alone,) = told(tmp_path, rest)
    (shared,) = told(tmp_path, rest, ("a", "b"))

    assert "reaches 4.5 at most, and has to reach 20" in alone
    assert "reaches 1 at most" in shared  # each site has one block, and its controls are the ends


def test_one_run_per_arm_may_decide_by_what_a_a_runs_showed(tmp_path):
    history = Dispersion(1.0, 9, ("monday",))

    assert told(tmp_path, "[trials]\nruns = 1\n", history=history) == []
