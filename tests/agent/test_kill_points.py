"""SIGKILL and errors at system calls of an apply, a restore, a commit and a recovery.

The host comes back, and what is told of it is true. strace delivers them; the product has no hooks
for it. Here a spread of the calls is tried; `python -m benchmarks.faults` tries every one, and
breaks hosts in twenty other ways.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]


def campaign(*words: str, only: str = "kill -9") -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults", "--json", "--only", only, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    faults: list[dict[str, object]] = json.loads(done.stdout)
    return faults


def lost(faults: list[dict[str, object]]) -> list[dict[str, object]]:
    return [fault for fault in faults if fault["seconds"] is None or fault["wrong"]]


def test_killed_at_any_system_call_a_directory_comes_back():
    faults = campaign("--plain", "--faults", "20", "--hosts", "4", "--seed", "7")

    assert len(faults) >= 15
    assert lost(faults) == []


def test_an_error_at_any_system_call_is_told_truly_and_a_directory_comes_back():
    words = ("--plain", "--faults", "16", "--hosts", "4", "--seed", "7")

    faults = campaign(*words, only="error in")

    assert len(faults) >= 12
    assert lost(faults) == []


@pytest.mark.lab
@pytest.mark.usefixtures("permitted_kinds")
def test_killed_at_any_system_call_a_lab_host_comes_back_with_its_service():
    if not Path("/run/systemd/system").exists() and shutil.which("systemd-run") is None:
        pytest.skip("needs hosts with systemd")

    faults = campaign("--faults", "12", "--hosts", "4", "--seed", "7")

    assert len(faults) >= 9
    assert lost(faults) == []
