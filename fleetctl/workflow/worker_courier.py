"""Between a worker's disk and the queue: what a cell needs comes, what it brought is sent."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.clock import Clock
from fleetctl.errors import InputError
from fleetctl.queue.campaigns import OpenCampaign
from fleetctl.queue.content import MOST_BYTES, Content, StoredFile
from fleetctl.store.campaign import (
    ANYWHERE,
    CampaignState,
    CellQueue,
    CellResult,
    CellRun,
    Place,
)
from fleetctl.store.run_folder import RunFolder
from fleetctl.trial.reasons import in_words
from fleetctl.workflow.as_found import FOUND

CALIBRATION = "calibration.json"
EVENTS = "events.jsonl"
SPEC = "spec/"


def owner_of(campaign: str, run: CellRun) -> str:
    """Return under which name the files of one attempt are kept."""
    return f"{campaign}/{run.id}#{run.attempt}"


def checked_path(path: str) -> str:
    """Return a path below a run's folder as it is.

    Raises:
        InputError: it leads elsewhere.
    """
    if path.startswith("/") or ".." in path.split("/"):
        raise InputError(
            f"the queue's database names a file outside the run's folder: {path}",
            why="neither workers nor controllers of ours do that",
            next_step="see who else writes into the database",
        )
    return path


def fetch_campaign(content: Content, found: OpenCampaign, root: Path) -> tuple[RunFolder, Path]:
    """Make a campaign's folder on this machine, with the spec and its payload.

    Returns:
        The folder, whose name is the campaign's id as on the controller, and the spec in it.

    Raises:
        QueueError: content is missing, or is not what its digest promises.
        InputError: the campaign's head is not one that we understand.
    """
    try:
        head, name = found.head["run"], str(found.head["run"]["spec"])
        wanted: Mapping[str, str] = found.head["files"]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"campaign {found.campaign} can't be understood",
            why=f"in its head {in_words(error)}",
            next_step="it was put there by another version of fleetctl: use the same everywhere",
        ) from error
    version = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:8]
    folder = RunFolder(root / version / found.campaign)
    if not folder.has("run.json"):
        shutil.rmtree(folder.path, ignore_errors=True)
        folder.path.mkdir(parents=True)
        files = content.files(found.campaign)
        for path, digest in wanted.items():
            file = StoredFile(digest, files[path].size_bytes if path in files else 0, "")
            folder.write(checked_path(path), content.bytes_of(file, path))
        folder.write_json("run.json", head)
    _fetch_calibration(content, folder)
    return folder, folder.path / SPEC / name


def _fetch_calibration(content: Content, folder: RunFolder) -> None:
    """Take the calibration that the first worker found: it is the same for all cells."""
    file = content.files(folder.run_id).get(CALIBRATION)
    if file is not None:
        folder.write(CALIBRATION, content.bytes_of(file, CALIBRATION))


@dataclass
class Courier:
    """A `CellQueue` that sends what a trial left on this machine's disk before it is counted."""

    queue: CellQueue
    content: Content
    folder: RunFolder
    clock: Clock
    place: str
    _taken_s: dict[str, float] = field(default_factory=dict)

    def put(self, runs: Iterable[CellRun]) -> None:
        """Let runs wait."""
        self.queue.put(runs)

    def take(
        self, site: str, *, block: str, worker: str, prefers: str = "", place: Place = ANYWHERE
    ) -> CellRun | None:
        """Give a waiting run of a block to a site."""
        began_s = self.clock.now_s()
        run = self.queue.take(site, block=block, worker=worker, prefers=prefers, place=place)
        if run is not None:
            self._taken_s[run.id] = began_s
        return run

    def done(self, run: CellRun, result: CellResult) -> bool:
        """Send transcripts and events, then count the result.

        A trial that was calibrated unlike the campaign's others is given back: its contexts had
        other lengths.
        """
        if not self._is_calibrated_alike():
            self.queue.give_back(run, "calibrated unlike the campaign's other cells", fault=False)
            return False
        owner = owner_of(self.folder.run_id, run)
        for path in self._files(result.trial):
            self._send(owner, path)
        events = "".join(self._events(run, result)).encode()
        self.content.attach(owner, {f"{result.trial}/{EVENTS}": events})
        return self.queue.done(run, result)

    def failed(self, run: CellRun, why: str) -> bool:
        """End a run without a result."""
        return self.queue.failed(run, why)

    def give_back(self, run: CellRun, why: str, *, fault: bool) -> bool:
        """Let a run wait again."""
        return self.queue.give_back(run, why, fault=fault)

    def quarantine(self, site: str, why: str) -> None:
        """Let nothing be measured on a site any more."""
        self.queue.quarantine(site, why)

    def state(self) -> CampaignState:
        """Return how all runs fare."""
        return self.queue.state()

    def results(self) -> tuple[CellResult, ...]:
        """Return what was counted."""
        return self.queue.results()

    def _is_calibrated_alike(self) -> bool:
        if not self.folder.has(CALIBRATION):
            return True
        ours = (self.folder.path / CALIBRATION).read_bytes()
        self.content.attach(self.folder.run_id, {CALIBRATION: ours}, only_first=True)
        _fetch_calibration(self.content, self.folder)
        return (self.folder.path / CALIBRATION).read_bytes() == ours

    def _files(self, trial: str) -> list[Path]:
        return sorted(p for p in (self.folder.path / trial).rglob("*") if p.is_file())

    def _send(self, owner: str, path: Path) -> None:
        name = str(path.relative_to(self.folder.path))
        size_bytes = path.stat().st_size
        if size_bytes <= MOST_BYTES:
            self.content.attach(owner, {name: path.read_bytes()})
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        kept = StoredFile(digest, size_bytes, f"{self.place}:{path.resolve()}")
        self.content.mention(owner, name, kept)

    def _events(self, run: CellRun, result: CellResult) -> Iterator[str]:
        """Yield what was recorded of this attempt, as lines, and what its hosts held as found."""
        since_s = self._taken_s.get(run.id, 0.0)
        for event in self.folder.events():
            about = {event.facts.get("site"), event.facts.get("host")}
            is_asked_for = event.at_s >= since_s or event.kind == FOUND
            if is_asked_for and about & {result.site, *result.site.split("+")}:
                line: dict[str, Any] = {"at_s": event.at_s, "kind": event.kind, **event.facts}
                yield json.dumps(line, ensure_ascii=False) + "\n"
