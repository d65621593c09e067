"""A sequential run on a real host ends at the look that answers, and the report says so."""

import json

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

FLAG = '[env]\nSGLANG_X = "1"\n[control]\nenv = { SGLANG_X = "0" }\n'
CLEAR = """
import json, os, pathlib
bad = 450 if os.environ["FLEETCTL_ARM"] == "control" else 5
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(
    {"sessions": 1000, "counts": {"leak": bad, "done": 1000 - bad}}))
"""


def test_a_run_ends_at_the_look_that_answers_and_leaves_every_byte_as_found(
    person, untouched, lab_hosts
):
    spec = person.spec(FLAG, runs=3)
    (person.folder / "trial.py").write_text(CLEAR)
    spec.write_text(
        spec.read_text().replace("runs = 3\n", 'runs = 3\nstop = "sequential"\nlooks = [2]\n')
    )

    done = person.run("run", spec, "--json")

    assert done.returncode == ExitCode.OK, done.stderr
    assert "look at 2 runs per arm: reduced; the run ends here" in done.stderr
    assert len([event for event in person.events() if event["kind"] == "trial"]) <= 5
    report = json.loads(done.stdout)
    assert report["verdict"] == "reduced"
    assert "peeked" not in report["flags"]
    assert any("a declared look decided" in note for note in report["notes"])
    untouched()
