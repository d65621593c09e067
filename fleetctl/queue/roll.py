"""Who works: every worker says now and then that it lives; the silent ones' cells wait again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Self

from fleetctl.errors import FleetError
from fleetctl.queue import statements as sql
from fleetctl.queue.database import Database

BEATS_PER_LOSS = 6


class Roll:
    """Says from a thread of its own that this process lives, and looks after the others.

    A worker that has been silent for as long as it said itself is declared lost: the cells it had
    wait on the board again, and what it says of them later is refused. It may well live behind a
    cut network; the lease of its host is what keeps another worker off that host meanwhile.
    """

    def __init__(
        self,
        database: Database,
        worker: str,
        name: str,
        *,
        lost_after_s: float,
        on_lost: Callable[[str, int], None] = lambda name, cells: None,
    ) -> None:
        """Prepare.

        Args:
            database: a connection of its own, so that a slow transaction hides no heartbeat.
            worker: unique name of this process.
            name: how people call it.
            lost_after_s: silence after which this worker is declared lost.
            on_lost: told the name of each, and how many cells it had.
        """
        self._database = database
        self._worker = worker
        self._name = name
        self._lost_after_s = lost_after_s
        self._on_lost = on_lost
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="roll", daemon=True)

    def __enter__(self) -> Self:
        """Be on the roll, and stay on it.

        Raises:
            QueueError: the database can't be used.
        """
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the roll; what this process still has waits for somebody else at once."""
        self._ended.set()
        self._thread.join(timeout=2 * self._lost_after_s)
        with contextlib.suppress(FleetError):
            declare_lost(self._database, self._worker, f"worker {self._name} left")
            self._database.run(lambda cursor: _forget(cursor, self._worker))

    def beat(self) -> None:
        """Say that we live, and look for those that do not."""
        row = [self._worker, self._name, self._lost_after_s]
        self._database.run(lambda cursor: cursor.execute(sql.SEEN, row))
        for worker, name in self._silent():
            why = f"worker {name} was silent for too long"
            self._on_lost(name, declare_lost(self._database, worker, why))

    def _silent(self) -> list[tuple[str, str]]:
        def read(cursor: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SILENT, [self._worker])
            return list(cursor.fetchall())

        return self._database.run(read)

    def _keep(self) -> None:
        while not self._ended.wait(self._lost_after_s / BEATS_PER_LOSS):
            # away for longer than patience: the next beat tries again, or we are declared lost
            try:
                self.beat()
            except FleetError as error:
                self._on_lost(f"{self._name} itself: {error}", 0)


def _forget(cursor: Any, left: str) -> None:  # noqa: ANN401 - psycopg's class
    """Forget a worker that left, and those that have been lost for long."""
    cursor.execute(sql.FORGET_QUEUES, {"left": left})
    cursor.execute(sql.FORGET_WORKERS, {"left": left})


def declare_lost(database: Database, worker: str, why: str) -> int:
    """Give a worker's cells back to the board, in one transaction; return how many."""
    asked = {"worker": worker, "why": why}

    def give(cursor: Any) -> int:  # noqa: ANN401 - psycopg's class
        cursor.execute(sql.LOST_RUNS, asked)
        cells = int(cursor.rowcount)
        cursor.execute(sql.LOST, asked)
        cursor.execute(sql.LOST_TRIALS, asked)
        cursor.execute(sql.LOST_SHARDS, asked)
        cursor.execute(sql.FORGET_CLAIMS, asked)
        cursor.execute(sql.MARK_LOST, asked)
        return cells

    return database.run(give)
