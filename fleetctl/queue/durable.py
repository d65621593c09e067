"""A campaign's cells in PostgreSQL: a `CellQueue` for any number of machines.

Phase and result are the engine's (a cell run is a workflow, see `engine.py`); which cell a site
gets next is decided here, in one transaction that moves the workflow from the board to our queue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from fleetctl.clock import Clock
from fleetctl.errors import QueueError
from fleetctl.queue import statements as sql
from fleetctl.queue.database import Database
from fleetctl.queue.engine import Engine, Failure, Output
from fleetctl.store.campaign import (
    ANYWHERE,
    CampaignState,
    CellResult,
    CellRun,
    Place,
    RunPhase,
    RunState,
)

_POLL_S = 0.02
_LONGEST_POLL_S = 1.0
_GOOD_FOR = 10


class DurableQueue:
    """One campaign as one process sees it; satisfies `CellQueue`."""

    def __init__(self, engine: Engine, database: Database, campaign: str, clock: Clock) -> None:
        """Look at a campaign.

        Args:
            engine: of this process.
            database: where our tables are; set up already.
            campaign: its id, which is the id of its run.
            clock: for the waits until the engine has recorded an end.
        """
        self._engine = engine
        self._database = database
        self._campaign = campaign
        self._clock = clock
        self._looking = threading.Lock()
        self._seen: CampaignState | None = None
        self._seen_until_s = 0.0

    def put(self, runs: Iterable[CellRun]) -> None:
        """Let runs wait; those whose id is known already stay what they are."""
        wanted = tuple(runs)
        rows = [(self._workflow(run.id), self._campaign, *run.to_json().values()) for run in wanted]
        self._database.run(lambda cursor: cursor.executemany(sql.PUT, rows))
        for run in wanted:
            self._engine.put(self._workflow(run.id))
        self._forget()

    def take(
        self, site: str, *, block: str, worker: str, prefers: str = "", place: Place = ANYWHERE
    ) -> CellRun | None:
        """Give a waiting run of a block to a site; see `CellQueue.take`.

        A site on which another worker measures gets none.
        """
        asked = {
            "campaign": self._campaign,
            "site": site,
            "block": block,
            "worker": worker,
            "prefers": prefers,
            "index": place.index,
            "among": place.among,
            "mine": self._engine.worker,
        }

        def choose(cursor: Any) -> CellRun | None:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SEEN_AGAIN, [self._engine.worker])
            cursor.execute(sql.LOCK_SITE, asked)
            found = self._half_taken(cursor, asked)
            if found is not None:
                return found
            cursor.execute(sql.CHOOSE, asked)
            row = cursor.fetchone()
            if row is None:
                return None
            cursor.execute(sql.MOVE, {**asked, "workflow": row[0]})
            cursor.execute(sql.TAKE, {**asked, "workflow": row[0]})
            return CellRun(*cursor.fetchone())

        run = self._database.run(choose)
        self._forget()
        if run is None:
            return None
        if not self._engine.hand_out(self._workflow(run.id), run.attempt):
            raise QueueError(
                f"the engine did not begin {run.cell}",
                why="its queue is not looked at; the database may be overloaded",
                next_step="start the worker anew: the cell goes back by itself",
            )
        return run

    def done(self, run: CellRun, result: CellResult) -> bool:
        """Count a result; False when the attempt is no longer under way."""
        return self._end(run, Output({"attempt": run.attempt, **result.to_json()}), "")

    def failed(self, run: CellRun, why: str) -> bool:
        """End a run without a result; False when the attempt is no longer under way."""
        return self._end(run, Failure(f"{run.attempt}: {why}"), why)

    def give_back(self, run: CellRun, why: str, *, fault: bool) -> bool:
        """Let a run wait again; False when the attempt is no longer under way."""
        asked = {**self._asked(run), "why": why, "fault": int(fault)}

        def back(cursor: Any) -> bool:  # noqa: ANN401 - psycopg's class
            if not _touched(cursor, sql.BACK, asked):
                return False
            cursor.execute(sql.BACK_RUN, asked)
            return True

        is_back = self._database.run(back)
        self._forget()
        self._engine.end(self._workflow(run.id), run.attempt, None)
        return is_back

    def quarantine(self, site: str, why: str) -> None:
        """Let nothing be measured on a site any more."""
        row = [self._campaign, site, why]
        self._database.run(lambda cursor: cursor.execute(sql.QUARANTINE, row))
        self._forget()

    def state(self) -> CampaignState:
        """Return how all runs fare.

        Every site of a worker asks every second, and a campaign may have thousands of runs: what
        was read is good for ten times as long as it took, unless we changed something.
        """
        with self._looking:
            began_s = self._clock.monotonic_s()
            if self._seen is None or began_s >= self._seen_until_s:
                self._seen = self._read_state()
                now_s = self._clock.monotonic_s()
                self._seen_until_s = now_s + _GOOD_FOR * (now_s - began_s)
            return self._seen

    def _read_state(self) -> CampaignState:
        def read(cursor: Any) -> CampaignState:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.STATE, [self._campaign])
            runs = tuple(
                RunState(CellRun(*row[:9]), _phase(row[9], row[10]), *row[11:])
                for row in cursor.fetchall()
            )
            cursor.execute(sql.QUARANTINED, [self._campaign])
            return CampaignState(runs, dict(cursor.fetchall()))

        return self._database.run(read)

    def results(self) -> tuple[CellResult, ...]:
        """Return what was counted, in the order of the runs."""
        outputs = self._engine.outputs(f"{self._campaign}/")
        found = []
        for state in self._read_state().in_phase(RunPhase.DONE):
            output = dict(outputs[self._workflow(state.run.id)])
            del output["attempt"]
            found.append(CellResult.from_json(output))
        return tuple(found)

    def begin_again(self, wanted: Iterable[str]) -> None:
        """Go on after the end of an earlier controller.

        Runs that failed get another chance, quarantined sites are looked at anew, and runs that
        are not wanted any more are kept but not shown. Those under way stay with their workers.
        """
        kept = list(wanted)
        failed = [
            state.run
            for state in self._read_state().in_phase(RunPhase.FAILED)
            if state.run.id in set(kept)
        ]
        self._engine.forget([self._workflow(run.id) for run in failed])
        self._database.run(lambda cursor: cursor.execute(sql.FORGIVE, [self._campaign]))
        self._database.run(lambda cursor: cursor.execute(sql.WANTED, [kept, self._campaign]))
        for run in failed:
            self._engine.put(self._workflow(run.id))
        self._forget()

    def withdraw(self) -> int:
        """Let no run be taken any more; those under way end. Return how many had waited."""

        def off(cursor: Any) -> int:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.WITHDRAW, [self._campaign])
            return int(cursor.rowcount)

        count = self._database.run(off)
        self._forget()
        return count

    def _half_taken(self, cursor: Any, asked: dict[str, object]) -> CellRun | None:  # noqa: ANN401 - psycopg's class
        """Return a run that we took when the connection broke before we heard of it."""
        cursor.execute(sql.MINE, asked)
        for workflow, *run in cursor.fetchall():
            if not self._engine.is_handed_out(workflow, run[7]):
                return CellRun(*run)
        return None

    def _end(self, run: CellRun, ending: Output | Failure, why: str) -> bool:
        """Let the engine record an end, and see whose end it recorded."""
        if not self._has_attempt(run):
            return False
        workflow = self._workflow(run.id)
        note = {**self._asked(run), "why": why}
        if not self._database.run(lambda cursor: _touched(cursor, sql.NOTE, note)):
            self._engine.end(workflow, run.attempt, None)
            return False
        self._engine.end(workflow, run.attempt, ending)
        return self._is_recorded(run)

    def _is_recorded(self, run: CellRun) -> bool:
        """Wait until the engine has recorded an end; return whether it was this attempt's."""
        pause_s = _POLL_S
        while self._database.run(lambda cursor: _found(cursor, sql.OURS, self._asked(run))):
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)
        self._forget()
        return self._database.run(lambda cursor: _found(cursor, sql.ENDED, self._asked(run)))

    def _forget(self) -> None:
        """Read the state anew when it is asked for."""
        self._seen_until_s = 0.0

    def _has_attempt(self, run: CellRun) -> bool:
        return self._engine.is_handed_out(self._workflow(run.id), run.attempt)

    def _asked(self, run: CellRun) -> dict[str, Any]:
        return {
            "workflow": self._workflow(run.id),
            "attempt": run.attempt,
            "mine": self._engine.worker,
        }

    def _workflow(self, run_id: str) -> str:
        return f"{self._campaign}/{run_id}"


def _touched(cursor: Any, statement: str, asked: dict[str, Any]) -> bool:  # noqa: ANN401 - psycopg's class
    cursor.execute(statement, asked)
    return bool(cursor.rowcount)


def _found(cursor: Any, statement: str, asked: dict[str, Any]) -> bool:  # noqa: ANN401 - psycopg's class
    cursor.execute(statement, asked)
    return cursor.fetchone() is not None


def _phase(status: str | None, is_on_board: bool) -> RunPhase:  # noqa: FBT001 - a column of a row
    match status:
        case "SUCCESS":
            return RunPhase.DONE
        case None:
            return RunPhase.WAITING
        case "ENQUEUED" | "PENDING":
            return RunPhase.WAITING if is_on_board else RunPhase.TAKEN
        case _:
            return RunPhase.FAILED
