"""A matrix on two hosts: killed controllers, a power cut, and the factors that truly matter.

`python -m benchmarks.matrix` does the same with four hosts and 32 runs, and takes the time.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode
from fleetctl.lab import Kind
from tests.conftest import RunningLab
from tests.end_to_end.fleets import KEYS, OVERLAP, Level, Person, matrix_toml

pytestmark = pytest.mark.lab

TRIAL = """
import json, os, pathlib, random, time, urllib.request
time.sleep(1)
with urllib.request.urlopen(os.environ["FLEETCTL_URL"] + "/flags") as answer:
    flags = json.load(answer)
bf16 = flags["SGLANG_DSV4_BF16_INDEX_K"] == "1"
overlaps = flags["SGLANG_OPT_USE_MULTI_STREAM_OVERLAP"] == "1"
dice = random.Random(os.environ["FLEETCTL_RUN"] + os.environ["FLEETCTL_ARM"])
bad = sum(dice.random() < (0.4 if bf16 and overlaps else 0.02) for _ in range(400))
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(
    {"sessions": 400, "counts": {"leak": bad, "done": 400 - bad}}))
"""
RULES = 'interactions = [["keys", "overlap"]]\nper_machine = 2'


@dataclass
class Operator(Person):
    """Somebody who runs a matrix on two hosts made of processes."""

    running: RunningLab

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.running.lab.hosts)

    def spec_of(self, target: str = "decode", *, keys: Mapping[str, Level] = KEYS) -> Path:
        trial = self.folder / "trial.py"
        trial.write_text(TRIAL)
        path = self.folder / "matrix.toml"
        workload = f'kind = "command"\nsessions = 400\nargv = ["{sys.executable}", "{trial}"]'
        path.write_text(
            matrix_toml(target, rules=RULES, keys=keys, overlap=OVERLAP)
            + f'[workload]\n{workload}\n[trials]\nruns = 1\n[ready]\nsoak = "200ms"\n'
        )
        return path

    def wait_until_counted(self, process: subprocess.Popen[str], runs: int) -> None:
        """Wait until so many cell runs have been counted in the newest run."""
        for _ in range(2400):
            if self.log().count('"kind": "counted"') >= runs:
                return
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        raise AssertionError(f"never {runs} runs")

    def site_at_work(self, process: subprocess.Popen[str], resumed: int) -> str:
        """Wait until a site deploys a cell in a run that was resumed so often; return the site."""
        for _ in range(2400):
            events = [json.loads(line) for line in self.log().splitlines()]
            begins = [n for n, event in enumerate(events) if event["kind"] == "resumed"]
            since = events[begins[-1] :] if len(begins) == resumed else []
            at_work = [event["site"] for event in since if event["kind"] == "deploying"]
            if at_work:
                return at_work[0]
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        raise AssertionError("no site is at work")

    def log(self) -> str:
        """Return the events of the newest run; empty before there is one."""
        logs = sorted((self.folder / "runs").glob("2*/events.jsonl"))
        return logs[-1].read_text() if logs else ""

    def as_found(self, *hosts: str) -> dict[str, str]:
        """Return what hosts (default: all) serve from: bytes, modes and times."""
        tree = "find srv etc/systemd -name __pycache__ -prune -o -type f -printf '%p %m %T@ '"
        listing = f"{tree} -exec sha256sum {{}} \\; | sort; systemctl is-active sglang-dsv4-decode"
        root = self.running.lab.paths.hosts
        return {
            name: self.running.run(name, f"cd {root / name} && {listing}")
            for name in hosts or self.hosts
        }


@pytest.fixture(scope="module")
def two_hosts(labs, permitted_kinds):
    return labs.up(2, kind=Kind.PROCESSES)


@pytest.fixture
def operator(two_hosts, tmp_path):
    for host in two_hosts.lab.hosts:
        two_hosts.wait_until_active(host.name)
    return Operator(tmp_path, two_hosts.inventory, two_hosts)


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_a_matrix_survives_two_kills_and_a_power_cut_and_names_what_matters(operator):
    before = operator.as_found()
    words: tuple[str | Path, ...] = ("matrix", operator.spec_of())
    for counted in (1, 2):
        process = operator.start(*words)
        operator.wait_until_counted(process, counted)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        words = ("matrix", "--resume", "latest", "--json")
    process = operator.start(*words)
    victim = operator.site_at_work(process, resumed=2)
    operator.running.lab.kill(victim)
    operator.running.lab.boot(victim)
    out, said = process.communicate(timeout=240)

    assert process.returncode == ExitCode.OK, said
    assert "runs are measured already" in said
    report = json.loads(out)
    trials = [trial for cell in report["cells"] for trial in cell["trials"]]
    assert len(trials) == len(set(trials)) == 4
    assert report["explained"]["levels"] == [["keys", "bf16"], ["overlap", "on"]]
    shown = {e["term"][0][0] for e in report["effects"] if (e["p_holm"] or 1.0) < 0.05}
    assert shown == {"keys", "overlap"}
    assert operator.as_found() == before


def test_a_plan_changes_nothing_and_levels_that_are_equal_on_a_host_are_refused(operator):
    # the service has this flag at 0 as it is found, and bf16 keys
    same = {"bf16": KEYS["bf16"], "fp8": {"SGLANG_DSV4_TRITON_INDEXER": "0"}}
    before = operator.as_found("lab-1")

    planned = operator.run("plan", operator.spec_of("lab-1"))
    assert planned.returncode == ExitCode.OK
    assert "4 cells, 4 runs on 1 site." in planned.stdout
    assert "lab-1: " in planned.stdout

    refused = operator.run("matrix", operator.spec_of("lab-1", keys=same))
    assert refused.returncode == ExitCode.REFUSED
    assert "two cells are equal on lab-1" in refused.stderr
    assert not (operator.folder / "runs").exists()
    assert operator.as_found("lab-1") == before
