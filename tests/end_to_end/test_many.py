"""Matrix, A/A runs and resuming, on a real host."""

import json

import pytest

from fleetctl.errors import ExitCode
from tests.end_to_end.fleets import DIFF, KEYS, matrix_toml

pytestmark = pytest.mark.lab

# fp8 is what differs from the host as found
MATRIX = matrix_toml("lab-1", observers=("diff",), diff=DIFF, keys={"bf16": {}, "fp8": KEYS["fp8"]})


def test_a_matrix_measures_every_cell_and_leaves_the_host_as_found(person, untouched):
    done = person.run("matrix", person.matrix(MATRIX), "--json", deadline_s=180)

    assert done.returncode == ExitCode.INCONCLUSIVE, done.stderr  # no session was bad
    cells = {tuple(sorted(cell["levels"].items())) for cell in json.loads(done.stdout)["cells"]}
    assert len(cells) == 4
    untouched()


FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'


def test_a_killed_run_is_resumed_from_what_is_on_disk_and_on_the_host(person, untouched):
    process = person.start("run", person.spec(FLAG, runs=2, trial_s=2.0))
    person.wait_for(process, "trial")
    process.kill()
    process.communicate()

    done = person.run("resume", "latest", deadline_s=180)

    assert done.returncode == ExitCode.INVALID, done.stderr
    assert "restored what the run had left" in done.stderr
    trials = [event for event in person.events() if event["kind"] == "trial"]
    assert sorted(event["slot"] for event in trials) == [0, 1, 2, 3]
    assert person.run("resume", "latest").returncode == ExitCode.REFUSED
    untouched()


def test_a_a_runs_are_remembered_for_later_verdicts(person, untouched):
    done = person.run("aa", person.spec(FLAG), "--runs-per-host", "2", "--json")

    assert done.returncode == ExitCode.OK, done.stderr
    assert json.loads(done.stdout)["dispersion"] is None  # nothing was corrupt, nothing is known
    (record,) = (person.folder / "runs/aa.jsonl").read_text().splitlines()
    assert len(json.loads(record)["runs"]) == 2
    untouched()
