"""`fleetctl plan`: what the design can see is told before any host is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import AaRecord
from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.plan import plan
from fleetctl.errors import ExitCode
from fleetctl.spec.loader import load_experiment
from fleetctl.store.history import History
from fleetctl.workflow.workloads import digest_of

SPEC = '[experiment]\nname = "e"\ntarget = "t"\n[env]\nA = "1"\n[trials]\nruns = 3\n'
NOBODY = """
[hosts.away]
address = "127.0.0.1"
port = 1
user = "nobody"
roles = ["t"]
tree = "/srv/x"
python = "/usr/bin/python3"
model = "m"
connect_deadline = "1s"
unit = "x.service"
service_url = "http://127.0.0.1:2"
labels = { class = "h200" }
"""


@pytest.fixture
def fleetctl(monkeypatch, capsys, tmp_path):
    """Plan an experiment on a host that does not answer; returns exit code, stdout and stderr."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(plan)
    (tmp_path / "e.toml").write_text(SPEC)
    (tmp_path / "hosts.toml").write_text(NOBODY)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        argv = ["fleetctl", "e.toml", "--inventory", "hosts.toml", "--runs", "runs", *words]
        monkeypatch.setattr("sys.argv", argv)
        code = run_guarded(app)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_power_is_told_even_where_no_host_answers(fleetctl):
    code, out, err = fleetctl("--minutes-per-run", "5")

    assert code == ExitCode.REFUSED
    assert "3 runs of 40 sessions per arm can confirm a complete fix and little else" in out
    assert "Runs per arm for 80% power from 15%: 9 for 7.5%, 5 for 5%, 4 for 3%, 3 for 0%." in out
    assert "30 minutes of host time" in out
    assert err.count("error:") == 1


def test_what_a_a_runs_showed_and_took_is_used_and_named(fleetctl, tmp_path: Path):
    workload = digest_of(load_experiment(tmp_path / "e.toml").workload)
    runs = arm("control", [1, 9, 3, 11], [40] * 4)
    History(tmp_path / "runs").add_aa(AaRecord("monday", "h200", workload, runs, 2.0))

    _, out, _ = fleetctl()

    assert "A/A history with 3 df: monday" in " ".join(out.split())
    assert "12 minutes of host time" in out


def test_json_is_one_document_also_where_no_host_answers(fleetctl):
    code, out, _ = fleetctl("--json")

    assert code == ExitCode.REFUSED
    assert json.loads(out)["error"]["kind"] == "HostUnreachable"
