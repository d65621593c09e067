"""Bring up a lab whose engine decodes on this machine's GPU, run `fleetctl matrix` on it, go.

    python -m benchmarks.gpu.on_host --out DIR [--budget-s 500] [--load FILE]

The cells one step away from the baseline come first, then those that `load.toml` names; what the
budget cuts off is named as unmeasured by the matrix itself. Prints how long each phase took. Into
`--out` go the run's raw results: reports, events, and each trial's facts, counts and log.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
SPEC = ROOT / "experiments" / "matrix_gpu.toml"
READY_S = 120.0
RESTORE_S = 20.0  # what an orderly end takes: the engine as found starts once more
LEFT_OUT = (".jsonl.gz", ".sqlite", "-wal", "-shm")


@dataclass(frozen=True)
class Load:
    """What `load.toml` says.

    Attributes:
        engine: arguments of the engine.
        tables: of the spec that are replaced.
        then: groups of cells, each measured after the one before.
    """

    engine: str
    tables: Mapping[str, Mapping[str, Any]]
    then: tuple[tuple[Mapping[str, str], ...], ...]

    @classmethod
    def read(cls, path: Path) -> Load:
        """Return the load in a file."""
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = {name: document[name] for name in ("workload", "trials")}
        groups = tuple(tuple(group["cells"]) for group in document.get("then", ()))
        return cls(document["engine"], tables, groups)


def inline(value: object) -> str:
    """Return a value as TOML writes it inside a line; JSON writes the others alike."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {inline(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


def spec_text(template: str, load: Load, groups: int) -> str:
    """Return the matrix with the load's tables and its first groups of further cells."""
    for name, table in load.tables.items():
        body = "".join(f"{key} = {inline(value)}\n" for key, value in table.items())
        template = re.sub(rf"(?ms)^\[{name}\]\n.*?(?=^\[|\Z)", f"[{name}]\n{body}\n", template)
    more = [cell for group in load.then[:groups] for cell in group]
    if not more:
        return template
    rules = "".join(f"  {inline(rule)},\n" for rule in still_excluded(template, more))
    return re.sub(r"(?ms)^exclude  = \[\n.*?^\]", f"exclude  = [\n{rules}]", template)


def still_excluded(template: str, more: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return each cell that the template's rules leave out, except those of `more`."""
    document = tomllib.loads(template)
    levels = {one["name"]: [each["name"] for each in one["level"]] for one in document["factor"]}
    cells = [dict(zip(levels, row, strict=True)) for row in itertools.product(*levels.values())]
    wanted = [{**document["matrix"]["baseline"], **cell} for cell in more]
    return [
        cell
        for cell in cells
        if cell not in wanted and any(covers(rule, cell) for rule in document["matrix"]["exclude"])
    ]


def covers(rule: Mapping[str, str | list[str]], cell: Mapping[str, str]) -> bool:
    """Tell whether a rule of `exclude` leaves out a cell."""
    return all(
        cell[name] in ([levels] if isinstance(levels, str) else levels)
        for name, levels in rule.items()
    )


@dataclass(frozen=True)
class Bench:
    """A folder with a lab and runs, and when all has to be over."""

    folder: Path
    end_s: float

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return self.end_s - time.monotonic()

    def fleetctl(self, *words: str, within_s: float) -> int:
        """Run fleetctl; after `within_s` it is asked, as by Ctrl-C, for an orderly end."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "FLEETCTL_LAB_DIR": str(self.folder / "lab"),
            "FLEETCTL_INVENTORY": str(self.folder / "lab" / "inventory.toml"),
            "FLEETCTL_RUNS": str(self.folder / "runs"),
            "COLUMNS": "160",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        try:
            return process.wait(max(within_s, 1.0))
        except subprocess.TimeoutExpired:
            print(f"the budget ends: {words[0]} is asked for its end", flush=True)
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(2 * RESTORE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def repro(self, workload: Mapping[str, Any], cache_mode: str) -> None:
        """Drive the workload once against the engine as found, and show the batch it reached."""
        words = ["--url", self.service_url(), "--cache-mode", cache_mode]
        for name in ("sessions", "rounds", "context_tokens", "max_tokens"):
            words += [f"--{name.replace('_', '-')}", str(workload[name])]
        with Watched(f"{self.service_url()}/v1/loads") as watched:
            self.fleetctl("repro", *words, within_s=self.left_s - RESTORE_S)
        print(f"largest batch {max(watched.seen, default=0)}", flush=True)

    def status(self) -> dict[str, Any]:
        """Return how the newest matrix fares."""
        argv = [sys.executable, "-m", "fleetctl", "matrix", "--status", "latest", "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment["FLEETCTL_RUNS"] = str(self.folder / "runs")
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, check=False)
        with contextlib.suppress(ValueError):
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        return {}

    def service_url(self) -> str:
        """Return where the lab's one host serves."""
        inventory = tomllib.loads((self.folder / "lab/inventory.toml").read_text("utf-8"))
        host: dict[str, str] = next(iter(inventory["hosts"].values()))
        return host["service_url"]

    def wait_until_it_serves(self) -> bool:
        """Wait for the engine that `lab up` started; tell whether it answers."""
        url = f"{self.service_url()}/health"
        deadline_s = time.monotonic() + READY_S
        while time.monotonic() < deadline_s:
            with (
                contextlib.suppress(OSError),  # refused, or 503
                urllib.request.urlopen(url, timeout=5) as answer,
            ):
                return bool(answer.status == 200)
            time.sleep(0.2)
        return False

    def server_info(self) -> dict[str, Any]:
        """Return what the engine says about itself."""
        with urllib.request.urlopen(f"{self.service_url()}/server_info", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def service_log(self) -> str:
        """Return the end of the engine's log."""
        logs = (self.folder / "lab/hosts").glob("*/var/log/journal/sglang-dsv4-decode.service.log")
        return "\n".join(log.read_text("utf-8", "replace")[-6000:] for log in logs)


class Watched:
    """Asks a server for its batch, again and again, until the block is left."""

    def __init__(self, url: str) -> None:
        self.seen: list[int] = []
        self._url = url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_problem: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            with (
                contextlib.suppress(OSError, ValueError),
                urllib.request.urlopen(self._url, timeout=5) as answer,
            ):
                self.seen.append(int(json.loads(answer.read())["running"]))


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Print how long a phase took, however it ends."""
    began_s = time.monotonic()
    try:
        yield
    finally:
        print(f"[{name}: {time.monotonic() - began_s:.1f} s]", flush=True)


def measure(bench: Bench, load: Load) -> None:
    """Run the matrix, then the same with more cells, until time is up or all is measured."""
    template = SPEC.read_text("utf-8")
    path = bench.folder / SPEC.name
    (bench.folder / "payload").symlink_to(ROOT / "payload")  # where the patches' sources are
    for group in range(len(load.then) + 1):
        path.write_text(spec_text(template, load, group), "utf-8")
        words = ["--resume", "latest"] if group else []
        with timed(f"matrix {group}"):
            code = bench.fleetctl("matrix", *words, str(path), within_s=bench.left_s - RESTORE_S)
        print(f"matrix {group} ended with {code}: {bench.status().get('counts')}", flush=True)
        if bench.left_s < 2 * RESTORE_S:
            return


def keep(bench: Bench, archive: Path) -> None:
    """Pack the raw results without transcripts: the filler would fill the archive."""
    with tarfile.open(archive, "w:gz") as out:
        for file in sorted((bench.folder / "runs").rglob("*")):
            if file.is_file() and not file.name.endswith(LEFT_OUT):
                out.add(file, str(file.relative_to(bench.folder)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all of it and return 0 when the lab came up and something was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/matrix_on_gpu"))
    parser.add_argument("--load", type=Path, default=HERE / "load.toml")
    parser.add_argument("--budget-s", type=float, default=500.0)
    parser.add_argument("--try-first", nargs="*", default=(), metavar="CACHE_MODE")
    parser.add_argument("--python", type=Path, help="the interpreter that serves")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True)
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.folder, time.monotonic() + options.budget_s)
    load = Load.read(options.load)
    from fleetctl.lab import Kind, Lab

    lab = Lab.at(options.folder / "lab", say=print)
    try:
        with timed("lab up"):
            lab.up(1, kind=Kind.PROCESSES, engine=load.engine.split(), python=options.python)
        with timed("engine ready"):
            serves = bench.wait_until_it_serves()
        if serves:
            for mode in options.try_first:
                with timed(f"repro, {mode}"):
                    bench.repro(load.tables["workload"], mode)
            print(
                json.dumps(bench.server_info()["model"] | {"device": bench.server_info()["device"]})
            )
            measure(bench, load)
    finally:
        print(bench.service_log()[-3000:])
        keep(bench, options.out / "matrix-raw.tar.gz")
        with timed("lab down"):
            lab.down()
    return 0 if serves else 1


if __name__ == "__main__":
    sys.exit(main())
