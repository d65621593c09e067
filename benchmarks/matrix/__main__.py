"""Four hosts against one, two killed controllers, one power cut: does the matrix stand it?

    python -m benchmarks.matrix DIR [--sleep 20] [--runs 2] [--sampled] [--only speed|kills]

`speed` runs the same matrix (16 cells x `--runs`, a workload that sleeps) on one host of a process
lab and on four, and prints the ratio of their times. `kills` runs it on four, kills the controller
twice with SIGKILL at random moments and cuts the power of a host once; --resume goes on. It then
checks that every run counts once, that every host is byte for byte as it was, and that the planted
factors, and no others, are named. Exits 1 when something of it does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.lab import Kind, Lab

ROOT = Path(__file__).resolve().parents[2]
FACTORS = {
    "keys": ("SGLANG_DSV4_BF16_INDEX_K", "1", "0"),
    "overlap": ("SGLANG_OPT_USE_MULTI_STREAM_OVERLAP", "1", "0"),
    "triton": ("SGLANG_DSV4_TRITON_INDEXER", "0", "1"),
    "probe": ("SGLANG_DSV4_GE_DIFF", "0", "1"),
}
PLANTED = {"keys=l1", "overlap=l1", "probe=l1"}
CELLS = 16
WANTED_RATIO = 3.0


@dataclass(frozen=True)
class Bench:
    """A lab of four process hosts, and a folder for specs and runs."""

    folder: Path
    sleep_s: float
    runs: int

    @property
    def lab(self) -> Lab:
        """The lab of this folder."""
        return Lab.at(self.folder / "lab")

    def up(self) -> None:
        """Boot four hosts that serve the tests' stand-in, which starts at once."""
        self.lab.up(4, kind=Kind.PROCESSES, tree_source=ROOT / "tests" / "lab" / "standin")

    def spec(self, target: str, factors: int = len(FACTORS)) -> Path:
        """Write the matrix of the first factors for a target and return its path."""
        chosen = dict(list(FACTORS.items())[:factors])
        baseline = ", ".join(f'{name} = "l0"' for name in chosen)
        lines = [
            f'[experiment]\nname = "on_{target}"\ntarget = "{target}"',
            f"[matrix]\nbaseline = {{ {baseline} }}",
            'interactions = [["keys", "overlap"]]\nper_machine = 4\npatience = "2m"',
        ]
        for name, (flag, *values) in chosen.items():
            lines.append(f'[[factor]]\nname = "{name}"\nobserver = {str(name == "probe").lower()}')
            lines += [
                f'[[factor.level]]\nname = "l{level}"\nenv = {{ {flag} = "{value}" }}'
                for level, value in enumerate(values)
            ]
        argv = [sys.executable, str(ROOT / "benchmarks/matrix/trial.py"), str(self.sleep_s)]
        lines.append(f'[workload]\nkind = "command"\nsessions = 40\nargv = {json.dumps(argv)}')
        lines.append(f'[trials]\nruns = {self.runs}\n[ready]\nsoak = "200ms"')
        path = self.folder / f"{target}.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a controller whose talk goes to a log."""
        argv = [sys.executable, "-m", "fleetctl", "matrix", *words, "--json"]
        with (
            (self.folder / "talk.log").open("ab") as log,
            (self.folder / "out.json").open("wb") as out,
        ):
            environment = {**os.environ, "FLEETCTL_INVENTORY": str(self.lab.paths.inventory)}
            environment["PYTHONPATH"] = str(ROOT)
            return subprocess.Popen(
                argv,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
            )

    def timed(self, target: str, factors: int = len(FACTORS)) -> float:
        """Run the matrix on a target and return the seconds it took."""
        began_s = time.monotonic()
        code = self.start(str(self.spec(target, factors))).wait()
        if code:
            raise SystemExit(
                f"the matrix on {target} ended with {code}; see {self.folder}/talk.log"
            )
        return time.monotonic() - began_s

    def run_s(self) -> float:
        """Return the mean time from one counted run to the next, in the newest run."""
        log = max(self.folder.glob("runs/*/events.jsonl"), key=lambda path: path.stat().st_mtime)
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        counted = [event["at_s"] for event in events if event["kind"] == "counted"]
        return (counted[-1] - counted[0]) / (len(counted) - 1)

    def bytes_of(self, name: str) -> str:
        """Return a listing of everything a host serves from, with digests."""
        tree = self.lab.paths.hosts / name
        command = (
            f"cd {tree} && find srv etc/systemd -name __pycache__ -prune -o -type f -printf "
            "'%p %m %T@ ' -exec sha256sum {} \\; | sort"
        )
        return subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, check=True
        ).stdout

    def state(self) -> dict[str, int]:
        """Return how many runs stand where, of the newest run."""
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", "matrix", "--status", "latest", "--json"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        counts: dict[str, int] = json.loads(done.stdout)["counts"] if done.returncode == 0 else {}
        return counts


def speed(bench: Bench, *, sampled: bool) -> bool:
    """Print how many times as fast four hosts are.

    Sampled, one host measures a quarter of the cells, and the others count as its mean run.
    """
    if sampled:
        some_s = bench.timed("lab-1", factors=2)
        rest = (CELLS - 4) * bench.runs
        one_s = some_s + rest * bench.run_s()
        print(f"one host: {4 * bench.runs} runs in {some_s:.0f} s, {rest} at {bench.run_s():.1f} s")
    else:
        one_s = bench.timed("lab-1")
    four_s = bench.timed("decode")
    ratio = one_s / four_s
    print(
        f"one host {one_s:.0f} s, four hosts {four_s:.0f} s: {ratio:.2f} times as fast", flush=True
    )
    return ratio >= WANTED_RATIO


def kills(bench: Bench, seed: int) -> bool:
    dice = random.Random(seed)
    hosts = [host.name for host in bench.lab.hosts]
    before = {name: bench.bytes_of(name) for name in hosts}
    words = [str(bench.spec("decode"))]
    for kill in range(2):
        process = bench.start(*words)
        wait_until_done(bench, process, at_least=4 + 9 * kill)
        time.sleep(dice.uniform(0, bench.sleep_s))
        process.send_signal(signal.SIGKILL)
        process.wait()
        print(f"controller killed with {bench.state()}", flush=True)
        words = ["--resume", "latest"]
    process = bench.start(*words)
    wait_until_done(bench, process, at_least=18)
    victim = dice.choice(hosts)
    bench.lab.kill(victim)
    print(f"power of {victim} cut with {bench.state()}", flush=True)
    time.sleep(10)
    bench.lab.boot(victim)
    code = process.wait()
    print(f"the last controller ended with {code} and {bench.state()}", flush=True)
    return code == 0 and all(list(checks(bench, before)))


def wait_until_done(bench: Bench, process: subprocess.Popen[bytes], at_least: int) -> None:
    while bench.state().get("done", 0) < at_least:
        if process.poll() is not None:
            raise SystemExit(f"the controller ended early; see {bench.folder}/talk.log")
        time.sleep(1)


def checks(bench: Bench, before: dict[str, str]) -> Iterator[bool]:
    """Yield whether each promise holds, and print it."""
    report = json.loads((bench.folder / "out.json").read_text(encoding="utf-8"))
    trials = [trial for cell in report["cells"] for trial in cell["trials"]]
    per_cell: Counter[tuple[str, ...]] = Counter()
    for cell in report["cells"]:
        per_cell[tuple(cell["levels"].values())] += len(cell["trials"])
    moved = {
        "=".join(effect["term"][0])
        for effect in report["effects"]
        if len(effect["term"]) == 1 and (effect["p_holm"] or 1) < 0.05
    }
    same = [name for name, told in before.items() if bench.bytes_of(name) == told]
    found = {
        f"every run counts once: {len(set(trials))} trials, {len(per_cell)} cells": len(set(trials))
        == len(trials)
        == CELLS * bench.runs
        and set(per_cell.values()) == {bench.runs},
        f"hosts as found: {', '.join(same)}": len(same) == len(before),
        f"the factors named are the planted ones: {', '.join(sorted(moved))}": moved == PLANTED,
    }
    print(report["sentence"], *report["about"], sep="\n  ")
    for told, holds in found.items():
        print(f"{'ok  ' if holds else 'FAIL'} {told}", flush=True)
        yield holds


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--sleep", type=float, default=20.0, help="seconds of one trial")
    options.add_argument("--runs", type=int, default=2, help="of each cell; kills need two")
    options.add_argument("--sampled", action="store_true", help="one host does a quarter")
    options.add_argument("--only", choices=("speed", "kills"))
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(chosen.folder.resolve(), chosen.sleep, chosen.runs)
    bench.up()
    try:
        good = [] if chosen.only == "speed" else [kills(bench, chosen.seed)]
        good += [] if chosen.only == "kills" else [speed(bench, sampled=chosen.sampled)]
    finally:
        bench.lab.down()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
