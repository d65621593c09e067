"""The command line as people use it, against a fleet of the lab, with trials that take a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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

    def matrix(self, text: str, *, runs: int = 1, trial_s: float = 0.2) -> Path:
        """Write a matrix with the workload of `spec`; `text` is from `matrix_toml`."""
        path = self.folder / "matrix.toml"
        rest = self.spec(runs=runs, trial_s=trial_s).read_text().partition("[workload]")
        path.write_text(text + rest[1] + rest[2])
        return path

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


DIFF = {"off": {"SGLANG_DSV4_GE_DIFF": "0"}, "on": {"SGLANG_DSV4_GE_DIFF": "1"}}
KEYS = {"bf16": {"SGLANG_DSV4_BF16_INDEX_K": "1"}, "fp8": {"SGLANG_DSV4_BF16_INDEX_K": "0"}}
OVERLAP = {
    "on": {"SGLANG_OPT_USE_MULTI_STREAM_OVERLAP": "1"},
    "off": {"SGLANG_OPT_USE_MULTI_STREAM_OVERLAP": "0"},
}
# a level is a set of flags, or the source of a patch of the indexer
Level = Mapping[str, str] | str


def matrix_toml(
    target: str,
    *,
    name: str = "m",
    head: str = "",
    rules: str = "",
    observers: tuple[str, ...] = (),
    **factors: Mapping[str, Level],
) -> str:
    """Return a matrix without its workload.

    Args:
        target: of the inventory.
        name: of the matrix.
        head: lines on top.
        rules: further lines of `[matrix]`.
        observers: factors that only look.
        factors: by name; the first level of each is the baseline's.
    """
    baseline = ", ".join(f'{factor} = "{next(iter(levels))}"' for factor, levels in factors.items())
    lines = [head, "[experiment]", f'name = "{name}"', f'target = "{target}"']
    lines += ["[matrix]", f"baseline = {{ {baseline} }}", rules]
    for factor, levels in factors.items():
        lines += ["[[factor]]", f'name = "{factor}"']
        lines += ["observer = true"] if factor in observers else []
        for level, changes in levels.items():
            lines += ["[[factor.level]]", f'name = "{level}"', *_changes(changes)]
    return "\n".join([*lines, ""])


def _changes(level: Level) -> list[str]:
    if isinstance(level, str):
        patch = "[[factor.level.patch]]"
        return [patch, f'source = "{level}"', 'module = "serve.dsv4.indexer"']
    flags = ", ".join(f'{name} = "{value}"' for name, value in level.items())
    return [f"env = {{ {flags} }}"] if flags else []
