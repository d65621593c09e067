"""Matrix, A/A runs and resuming, on a real host."""

import json

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

MATRIX = """
[experiment]
name = "m"
target = "lab-1"
[matrix]
baseline = {{ diff = "off", keys = "bf16" }}
[[factor]]
name = "diff"
observer = true
[[factor.level]]
name = "off"
env = {{ SGLANG_DSV4_GE_DIFF = "0" }}
[[factor.level]]
name = "on"
env = {{ SGLANG_DSV4_GE_DIFF = "1" }}
[[factor]]
name = "keys"
[[factor.level]]
name = "bf16"
[[factor.level]]
name = "fp8"
env = {{ SGLANG_DSV4_BF16_INDEX_K = "0" }}
{rest}
"""


def test_a_matrix_measures_every_cell_and_leaves_the_host_as_found(person, untouched):
    rest = person.spec().read_text().partition("[workload]")
    spec = person.folder / "matrix.toml"
    spec.write_text(MATRIX.format(rest=rest[1] + rest[2]))

    done = person.run("matrix", spec, "--json", deadline_s=180)

    assert done.returncode == ExitCode.OK, done.stderr
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
