"""Shards of a trial's load on the queue: offered, taken, begun together, ended or lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.queue import statements as sql
from fleetctl.queue.database import Database

# every shard asks several times a second when to begin: it has heard by then
START_IN_S = 2.0


@dataclass(frozen=True)
class ShardTask:
    """A shard that was taken.

    Attributes:
        trial: unique name of the trial.
        shard: from 0.
        task: what its coordinator said.
    """

    trial: str
    shard: int
    task: Mapping[str, Any]


@dataclass(frozen=True)
class ShardState:
    """How a shard fares.

    Attributes:
        worker: that has it; empty before.
        fault: why it brings nothing; empty while it may.
    """

    shard: int
    worker: str
    is_ready: bool
    is_done: bool
    fault: str


class Shards:
    """The shards of all trials of a queue."""

    def __init__(self, database: Database, worker: str) -> None:
        """Use the database of a queue, as one worker."""
        self._database = database
        self._worker = worker

    def offer(self, trial: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Let workers take the shards of a trial; they are gone when we are declared lost."""
        rows = [(trial, n, self._worker, json.dumps(task)) for n, task in enumerate(tasks)]
        self._database.run(lambda cursor: cursor.executemany(sql.OFFER_SHARD, rows))

    def take(self, sites: Sequence[str]) -> ShardTask | None:
        """Return the next shard for a site that we can reach, of the oldest trial first."""
        asked = {"worker": self._worker, "sites": list(sites)}

        def choose(cursor: Any) -> ShardTask | None:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SEEN_AGAIN, [self._worker])
            cursor.execute(sql.TAKE_SHARD, asked)
            row = cursor.fetchone()
            return None if row is None else ShardTask(*row)

        return self._database.run(choose)

    def ready(self, task: ShardTask) -> None:
        """Say that a shard's sessions are prepared."""
        self._say(sql.SHARD_READY, task.trial, task.shard)

    def done(self, task: ShardTask) -> None:
        """Say that a shard's result is there."""
        self._say(sql.SHARD_DONE, task.trial, task.shard)

    def fault(self, task: ShardTask, why: str) -> None:
        """Say that a shard brings nothing: the trial is invalid."""
        self._say(sql.SHARD_FAULT, why, task.trial, task.shard)

    def starts_in_s(self, task: ShardTask) -> float | None:
        """Return in how many seconds all begin, by the database's clock; None before it is set."""

        def read(cursor: Any) -> float | None:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SHARD_START, [task.trial, task.shard])
            row = cursor.fetchone()
            return None if row is None else float(row[0])

        return self._database.run(read)

    def is_on(self, task: ShardTask) -> bool:
        """Whether the trial still wants this shard: nobody gave up, no other shard is lost."""
        asked = {"trial": task.trial, "shard": task.shard}

        def read(cursor: Any) -> bool:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SHARD_IS_ON, asked)
            return cursor.fetchone() is not None

        return self._database.run(read)

    def states(self, trial: str) -> tuple[ShardState, ...]:
        """Return how the shards of a trial fare."""

        def read(cursor: Any) -> tuple[ShardState, ...]:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SHARDS, [trial])
            return tuple(ShardState(*row) for row in cursor.fetchall())

        return self._database.run(read)

    def start_if_ready(self, trial: str) -> None:
        """Set the moment at which all shards begin, once every one of them is ready."""
        asked = {"trial": trial, "in_s": START_IN_S}
        self._database.run(lambda cursor: cursor.execute(sql.START_ALL, asked))

    def give_up(self, trial: str, why: str) -> None:
        """Let every shard of a trial end now."""
        self._say(sql.GIVE_UP_SHARDS, why, trial)

    def end(self, trial: str) -> None:
        """Forget a trial's shards."""
        self._say(sql.END_SHARDS, trial)

    def _say(self, statement: str, *values: object) -> None:
        self._database.run(lambda cursor: cursor.execute(statement, values))
