"""The embedded queue of a campaign: SQLite in the run's folder, for one controller.

WAL with full sync, one IMMEDIATE transaction for each change of state: a kill at any moment
leaves the old state or the new one. Whoever opens it has claimed the run's folder, so that runs
still marked as taken belong to a dead controller.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from fleetctl.errors import InputError, StoreError
from fleetctl.store.campaign import (
    ANYWHERE,
    CampaignState,
    CellResult,
    CellRun,
    Place,
    RunPhase,
    RunState,
)

FILE_NAME = "campaign.sqlite"
_TRIALS = "trials"
_BUSY_S = 30.0
_DAMAGED = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # a table or a column is missing
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_CONSTRAINT,
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, cell TEXT NOT NULL, arm TEXT NOT NULL, digest TEXT NOT NULL,
  run INTEGER NOT NULL, block TEXT NOT NULL, position INTEGER NOT NULL,
  attempt INTEGER NOT NULL, faults INTEGER NOT NULL,
  phase TEXT NOT NULL DEFAULT 'waiting', site TEXT NOT NULL DEFAULT '',
  worker TEXT NOT NULL DEFAULT '', why TEXT NOT NULL DEFAULT '', result TEXT,
  wanted INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE TABLE IF NOT EXISTS quarantined (site TEXT PRIMARY KEY, why TEXT NOT NULL) STRICT;
"""
_PUT = """
INSERT INTO runs (id, cell, arm, digest, run, block, position, attempt, faults)
VALUES (:id, :cell, :arm, :digest, :run, :block, :position, :attempt, :faults)
ON CONFLICT (id) DO UPDATE SET cell = :cell, arm = :arm, position = :position, wanted = 1
"""
_TAKE = """
UPDATE runs SET phase = 'taken', site = :site, worker = :worker, attempt = attempt + 1
WHERE id = (
  SELECT id FROM runs WHERE wanted AND phase = 'waiting' AND block = :block
  ORDER BY site = :site, arm != :prefers, position % :among != :index, position, id LIMIT 1
) AND NOT EXISTS (SELECT 1 FROM quarantined WHERE site = :site)
RETURNING id, cell, arm, digest, run, block, position, attempt, faults
"""
# a run that waits again through nobody's fault may go where it was, as if it had never been taken
_END = """
UPDATE runs SET phase = :phase, faults = faults + :faults, why = :why, result = :result,
  site = CASE WHEN :phase = 'waiting' AND :faults = 0 THEN '' ELSE site END
WHERE id = :id AND phase = 'taken' AND attempt = :attempt
"""
_STATE = """
SELECT id, cell, arm, digest, run, block, position, attempt, faults, phase, site, worker, why
FROM runs WHERE wanted ORDER BY position, id
"""
_RESULTS = "SELECT result FROM runs WHERE wanted AND phase = 'done' ORDER BY position, id"
_BEGIN_AGAIN = (
    "UPDATE runs SET phase = 'waiting', site = '' WHERE phase = 'taken'",
    "UPDATE runs SET phase = 'waiting', faults = 0 WHERE phase = 'failed'",
    "DELETE FROM quarantined",
)


class SqliteQueue:
    """A `CellQueue` in one file; use it as a context manager or close it."""

    def __init__(self, path: Path) -> None:
        """Open the queue, and make it if there is none.

        Raises:
            StoreError: the file can't be written, or it is damaged.
        """
        self._path = path
        self._lock = threading.Lock()
        with self._told():
            self._db = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def put(self, runs: Iterable[CellRun]) -> None:
        """Let runs wait; those whose id is known already keep their state and their results."""
        with self._transaction() as db:
            db.executemany(_PUT, [run.to_json() for run in runs])

    def take(
        self, site: str, *, block: str, worker: str, prefers: str = "", place: Place = ANYWHERE
    ) -> CellRun | None:
        """Give a waiting run of a block to a site; see `CellQueue.take`."""
        wish: dict[str, str | int] = {"site": site, "block": block, "worker": worker}
        wish |= {"prefers": prefers, "index": place.index, "among": place.among}
        with self._transaction() as db:
            row = db.execute(_TAKE, wish).fetchone()
        return None if row is None else CellRun(*row)

    def done(self, run: CellRun, result: CellResult) -> bool:
        """Count a result; False when the attempt is no longer under way."""
        text = json.dumps(result.to_json(), ensure_ascii=False)
        return self._end(run, RunPhase.DONE, result=text)

    def failed(self, run: CellRun, why: str) -> bool:
        """End a run without a result; False when the attempt is no longer under way."""
        return self._end(run, RunPhase.FAILED, faults=1, why=why)

    def give_back(self, run: CellRun, why: str, *, fault: bool) -> bool:
        """Let a run wait again; False when the attempt is no longer under way."""
        return self._end(run, RunPhase.WAITING, faults=int(fault), why=why)

    def quarantine(self, site: str, why: str) -> None:
        """Let nothing be measured on a site any more."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO quarantined VALUES (?, ?)", [site, why])

    def state(self) -> CampaignState:
        """Return how all runs fare."""
        with self._transaction() as db:
            rows = db.execute(_STATE).fetchall()
            away = db.execute("SELECT site, why FROM quarantined ORDER BY site").fetchall()
        with self._understood():
            runs = (RunState(CellRun(*row[:9]), RunPhase(row[9]), *row[10:]) for row in rows)
            return CampaignState(tuple(runs), dict(away))

    def results(self) -> tuple[CellResult, ...]:
        """Return what was counted, in the order of the runs."""
        with self._transaction() as db:
            rows = db.execute(_RESULTS).fetchall()
        with self._understood():
            return tuple(CellResult.from_json(json.loads(row[0])) for row in rows)

    def begin_again(self, wanted: Iterable[str]) -> None:
        """Go on after the end of an earlier controller.

        Runs that it had taken wait again, runs that failed get another chance, quarantined sites
        are looked at anew, and runs that are not wanted any more are kept but not shown.
        """
        with self._transaction() as db:
            for change in _BEGIN_AGAIN:
                db.execute(change)
            db.execute(
                "UPDATE runs SET wanted = id IN (SELECT value FROM json_each(?))",
                [json.dumps(list(wanted))],
            )

    def _end(
        self,
        run: CellRun,
        phase: RunPhase,
        *,
        faults: int = 0,
        why: str = "",
        result: str | None = None,
    ) -> bool:
        change = {"phase": phase.value, "faults": faults, "why": why, "result": result}
        with self._transaction() as db:
            ended = db.execute(_END, {**change, "id": run.id, "attempt": run.attempt})
            return ended.rowcount == 1

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:  # SQLite has ended it where the disk was full
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in our words what SQLite says."""
        try:
            yield
        except sqlite3.Error as error:
            # the low byte is the kind; errors of the module itself carry none
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise damaged(self._path, str(error)) from error
            raise StoreError(
                f"the campaign in {self._path} can't be kept",
                why=str(error),
                next_step="free space there, then go on with --resume",
            ) from error

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Say what is wrong with values that no queue wrote."""
        try:
            yield
        except (ValueError, TypeError, InputError) as error:
            raise damaged(self._path, f"it holds what no campaign writes: {error}") from error


def damaged(path: Path, why: str) -> StoreError:
    """Return the error of a file that holds no campaign any more, and what is not lost."""
    return StoreError(
        f"the campaign in {path} is damaged",
        why=why,
        next_step=f"move {path.name} away, or bring back a copy of it, and start a new run; "
        f"the trials that were counted are in {path.parent / _TRIALS}",
    )


def open_queue(folder: Path) -> SqliteQueue:
    """Return the queue of a run that has one.

    Raises:
        InputError: the run is no campaign.
        StoreError: the file is damaged, or empty beside trials that it has to know.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise InputError(
            f"run {folder.name} holds no campaign",
            why=f"there is no {FILE_NAME} in it",
            next_step="`fleetctl results list` shows which runs are matrices",
        )
    # a controller that was killed while it made the file leaves an empty one, but no trials
    if not path.stat().st_size and not _has_log(path) and any(folder.glob(f"{_TRIALS}/*")):
        raise damaged(path, "it is empty, so the trials that were counted are missing in it")
    return SqliteQueue(path)


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0
