"""One run's folder: what was asked, what happened, what was measured, what it means.

RUN/
  run.json               id, kind, name, holder, start: written first
  spec/                  the TOML files and every payload file, as they were
  plan.json              what would change on each host, and the schedule
  events.jsonl           append-only; the run's state is a fold over it
  hosts/HOST/facts.json  what the host is; service logs per trial beside it
  trials/NNN-ARM/        transcripts, counts, telemetry
  report.json report.md report.txt
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.errors import InputError
from fleetctl.store.atomic import append_line, store_errors, write_atomic
from fleetctl.trial.reasons import in_words

Json = Mapping[str, Any]
_SHOWN_RUNS = 5


@dataclass(frozen=True)
class Event:
    """One line of the event log."""

    at_s: float
    kind: str
    facts: Json


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run; every write is atomic, every event is on disk when it returns."""

    path: Path

    @classmethod
    def create(cls, root: Path, run_id: str, head: Json) -> RunFolder:
        """Make the folder of a new run.

        Raises:
            InputError: a run of that id exists, or the folder can't be made.
        """
        folder = cls(root / run_id)
        try:
            folder.path.mkdir(parents=True)
        except OSError as error:
            raise InputError(
                f"can't make the run folder {folder.path}",
                why=str(error.strerror),
                next_step="name another folder with --runs",
            ) from error
        folder.write_json("run.json", {"run": run_id, **head})
        return folder

    @property
    def run_id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    @property
    def place(self) -> str:
        """This very folder on this very machine, 12 hex digits; a copy has another place.

        Raises:
            StoreError: the folder is gone.
        """
        with store_errors(self.path):
            found = self.path.stat()
        text = f"{socket.gethostname()}\0{_machine_id()}\0{found.st_dev}\0{found.st_ino}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def write(self, name: str, content: bytes) -> Path:
        """Write one file of the run and return its path."""
        path = self.path / name
        write_atomic(path, content)
        return path

    def write_json(self, name: str, value: object) -> Path:
        """Write one JSON file of the run and return its path."""
        return self.write(name, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")

    def read_json(self, name: str) -> Any:  # noqa: ANN401 - JSON is any of its types
        """Return one JSON file of the run.

        Raises:
            InputError: the run has no such file, or it is damaged.
        """
        path = self.path / name
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                f"run {self.run_id} has no readable {name}",
                why=in_words(error),
                next_step=f"look into {self.path}; the run may have ended early",
            ) from error

    def head(self) -> dict[str, Any]:
        """Return what the run is: its kind, name, holder, spec.

        Raises:
            InputError: run.json is damaged.
        """
        return self.read_table("run.json")

    @property
    def kind(self) -> str:
        """What the run is, such as `experiment`; empty where its head is damaged."""
        try:
            return str(self.head().get("kind", ""))
        except InputError:
            return ""

    def read_table(self, name: str) -> dict[str, Any]:
        """Return one JSON file of the run that holds a table.

        Raises:
            InputError: the run has no such file, or it is damaged.
        """
        value = self.read_json(name)
        if not isinstance(value, dict):
            raise InputError(
                f"run {self.run_id} has no readable {name}",
                why=f"it holds a {type(value).__name__}, not a table",
                next_step=f"look into {self.path}; somebody else has written there",
            )
        return value

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the run for this process: two controllers of one run would undo each other.

        The claim ends with the process, however that ends.

        Raises:
            InputError: another process of this machine works on the run.
        """
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # a file system without locks can't tell: then nobody is refused
            with contextlib.suppress(OSError):
                _lock(handle, self)
            yield
        finally:
            os.close(handle)

    def has(self, name: str) -> bool:
        """Whether the run has that file."""
        return (self.path / name).is_file()

    def record(self, at_s: float, kind: str, **facts: object) -> None:
        """Append one event; it is on disk when this returns."""
        line = json.dumps({"at_s": round(at_s, 3), "kind": kind, **facts}, ensure_ascii=False)
        append_line(self.path / "events.jsonl", line)

    def record_numbered(self, at_s: float, kind: str, **facts: str) -> int:
        """Append one event and return how many of its kind came before it, whatever clocks say."""
        self.record(at_s, kind, **facts)
        same = [event.facts for event in self.events() if event.kind == kind]
        # others of this run may append at the same time
        return len(same) - 1 - same[::-1].index(facts)

    def events(self) -> Iterator[Event]:
        """Yield the events in order; lines torn by a crash are passed over."""
        path = self.path / "events.jsonl"
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                facts = json.loads(line)
                yield Event(facts.pop("at_s"), facts.pop("kind"), facts)
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                continue


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _lock(handle: int, run: RunFolder) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"run {run.run_id} is still going on",
            why="another fleetctl process of this machine works on it",
            next_step="wait for it, or end it with Ctrl-C; it restores its hosts",
        ) from None


def list_runs(root: Path) -> list[RunFolder]:
    """Return the runs below `root`, oldest first.

    Raises:
        InputError: `root` is no folder, or may not be read.
    """
    if not root.exists():
        return []
    try:
        return [RunFolder(path) for path in sorted(root.iterdir()) if (path / "run.json").is_file()]
    except OSError as error:
        raise InputError(
            f"can't list the runs below {root}",
            why=error.strerror or str(error),
            next_step="name the folder of the runs with --runs",
        ) from error


def find_run(root: Path, run_id: str, *, latest_but: str = "") -> RunFolder:
    """Return the run whose id is, or uniquely starts with, `run_id`; "latest" is the newest.

    Args:
        root: folder of the run folders.
        run_id: as typed.
        latest_but: a kind of run that "latest" passes over.

    Raises:
        InputError: there is none, or more than one.
    """
    runs = list_runs(root)
    if run_id == "latest":
        chosen = [run for run in runs if not latest_but or run.kind != latest_but]
        if chosen:
            return max(chosen, key=lambda run: (run.path / "run.json").stat().st_mtime)
    found = [run for run in runs if run.run_id == run_id] or [
        run for run in runs if run.run_id.startswith(run_id)
    ]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"{'no' if not found else 'more than one'} run is called {run_id}",
        why=f"{root} holds {_some(found or runs)}",
        next_step="`fleetctl results list` shows them all"
        if runs
        else "go to the folder where they were made, or name their folder with --runs",
    )


def _some(runs: Sequence[RunFolder]) -> str:
    """Return the newest few ids in words: a folder may hold hundreds."""
    names = [run.run_id for run in runs]
    earlier = len(names) - _SHOWN_RUNS
    shown = ", ".join(names[-_SHOWN_RUNS:]) or "no runs"
    return f"{shown}, and {earlier} earlier" if earlier > 0 else shown


def new_run_id(at_s: float, name: str, salt: str) -> str:
    """Return an id that sorts by time and says what it is: 20261129-184230-eager-3f9a."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(at_s))
    return f"{stamp}-{re.sub(r'[^A-Za-z0-9_.]+', '-', name)[:40]}-{salt}"
