"""The command line as people use it, against lab hosts, with trials that take a second."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

# every file's bytes, mode, owner and mtime; a directory's mtime moves with any rename inside it
EVERYTHING = r"""
places="/srv/dsv4 /etc/systemd/system /etc/fleetctl"
find $places -xdev -name __pycache__ -prune -o -type f -printf '%p %m %u %g %T@ ' \
  -exec sha256sum {} \; 2>/dev/null | sort
find $places -xdev -name __pycache__ -prune -o ! -type f -printf '%p %y %m %u %g %l\n' \
  2>/dev/null | sort
systemctl is-active sglang-dsv4-decode
systemctl is-enabled sglang-dsv4-decode
"""
LEFTOVERS = """
ls /var/lib/fleetctl/leases 2>/dev/null
systemctl list-timers --all --no-legend 'fleetctl*'
systemctl list-units --all --no-legend 'fleetctl*'
find /srv/dsv4 -name '.*tmp*'
grep -al '/var/lib/fleetctl/agen[t]' /proc/[0-9]*/cmdline 2>/dev/null
grep -al 'tra[p].*setsi[d]' /proc/[0-9]*/cmdline 2>/dev/null
"""
COMMAND = """
import json, os, pathlib, sys, time
time.sleep(float(os.environ.get("TRIAL_S", "0.2")))
bad = int(os.environ.get("BAD", "0"))
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(
    {"sessions": 10, "counts": {"leak": bad, "done": 10 - bad}}))
"""


@dataclass
class Person:
    """Somebody at a shell: runs fleetctl in a folder of their own, against one lab."""

    folder: Path
    inventory: Path

    def spec(self, body: str = "", *, name: str = "e", runs: int = 1, trial_s: float = 0.2) -> Path:
        trial = self.folder / "trial.py"
        trial.write_text(COMMAND)
        path = self.folder / f"{name}.toml"
        path.write_text(
            f'[experiment]\nname = "{name}"\ntarget = "lab-1"\n{body}\n'
            f'[workload]\nkind = "command"\nsessions = 10\n'
            f'argv = ["env", "TRIAL_S={trial_s}", "{sys.executable}", "{trial}"]\n'
            f"[trials]\nruns = {runs}\n"
            '[ready]\nsoak = "500ms"\n'
            'port = { deadline = "6s", poll = "1s" }\n'
            'health = { deadline = "6s", poll = "1s" }\n'
            'completion = { deadline = "6s", poll = "1s" }\n'
        )
        return path

    def payload(self, name: str, text: str) -> str:
        path = self.folder / "payload" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return f"payload/{name}"

    def argv(self, *words: str | Path) -> list[str]:
        return [sys.executable, "-m", "fleetctl", *map(str, words)]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "FLEETCTL_INVENTORY": str(self.inventory),
            "FLEETCTL_RUNS": str(self.folder / "runs"),
        }

    def run(
        self, *words: str | Path, deadline_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*words),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, process: subprocess.Popen[str], kind: str) -> None:
        """Wait until a running `fleetctl run` has recorded an event of this kind."""
        for _ in range(600):
            runs = sorted((self.folder / "runs").glob("2*/events.jsonl"))
            if runs and f'"kind": "{kind}"' in runs[-1].read_text():
                return
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        raise AssertionError(f"no event {kind}")

    def interrupt(
        self, process: subprocess.Popen[str], *signals: signal.Signals
    ) -> tuple[int, str]:
        """Send signals, by default Ctrl-C, and return the exit code and what was said."""
        for number in signals or (signal.SIGINT,):
            process.send_signal(number)
            time.sleep(0.3)
        try:
            _, said = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, said

    def last_report(self) -> dict[str, object]:
        (folder,) = sorted((self.folder / "runs").glob("2*"))[-1:]
        return json.loads((folder / "report.json").read_text())

    def events(self) -> list[dict[str, object]]:
        (folder,) = sorted((self.folder / "runs").glob("2*"))[-1:]
        return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def person(lab_hosts, tmp_path) -> Person:
    """Somebody with the session's lab: leave its hosts as you found them."""
    lab_hosts.wait_until_active("lab-1")
    return Person(tmp_path, lab_hosts.inventory)


@pytest.fixture
def untouched(lab_hosts) -> Callable[[], None]:
    """Call it to see that lab-1 is, byte for byte, what it was when the test began."""
    before = lab_hosts.run("lab-1", EVERYTHING)

    def check() -> None:
        assert lab_hosts.run("lab-1", EVERYTHING) == before
        assert lab_hosts.run("lab-1", f"{LEFTOVERS}true") == ""

    return check


@pytest.fixture
def repository_copy(tmp_path) -> Path:
    """The experiments and the payload of this repository, to be changed at will."""
    root = Path(__file__).parents[2]
    for name in ("experiments", "payload"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path
