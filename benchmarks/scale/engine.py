"""Faults that others met in the engine, tried again on the version that is installed.

Each check makes the circumstances of one report and returns what happened. The tests run them;
`python -m benchmarks.scale engine` prints them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from dbos import DBOS, SetWorkflowID
from sqlalchemy.exc import DBAPIError

from fleetctl.queue.address import Address

_DEADLINE_S = 60
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Finding:
    """What a check saw.

    Attributes:
        report: the engine's own number for it.
        holds: the engine did what a campaign needs.
        seen: the figures behind it.
    """

    report: str
    holds: bool
    seen: str


@dataclass
class Bench:
    """The engine in this process, with one workflow of one step whose body a check names.

    Attributes:
        bodies: what the step of a workflow does, by the workflow's id.
        runs: how often the step of each workflow really ran.
    """

    address: Address
    start: Callable[[str], Any] = field(init=False)
    bodies: dict[str, Callable[[], str]] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Say something to the engine's database behind its back."""
        with psycopg.connect(str(self.address), autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def step(self, workflow: str) -> str:
        """Do what the check wants; the engine records what it returns."""
        self.runs[workflow] += 1
        return self.bodies[workflow]()


@contextmanager
def bench(address: Address) -> Iterator[Bench]:
    """Run the engine as it comes, with nothing of ours around it."""
    made = Bench(address)
    DBOS(
        config={
            "name": "checks",
            "system_database_url": address.for_engine,
            "executor_id": "checks",
            "application_version": "1",
            "log_level": "CRITICAL",
        }
    )

    @DBOS.workflow(name="work")
    def work() -> str:
        workflow = str(DBOS.workflow_id)
        return DBOS.run_step({"name": "step"}, lambda: made.step(workflow))

    def start(workflow: str) -> Any:  # noqa: ANN401 - the engine's handle
        with SetWorkflowID(workflow):
            return DBOS.start_workflow(work)

    made.start = start
    DBOS.launch()
    try:
        yield made
    finally:
        DBOS.destroy(destroy_registry=True)


def same_id_at_once(on: Bench) -> Finding:
    """Start one workflow from many threads at once: it must run once, all get its result."""
    go = threading.Event()

    def slow() -> str:
        go.wait(_DEADLINE_S)
        return "once"

    on.bodies["same"] = slow
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(on.start, ["same"] * 24))
        go.set()
        results = {handle.get_result() for handle in handles}
    ran = on.runs["same"]
    return Finding("#544", ran == 1 and results == {"once"}, f"24 starts, {ran} run(s)")


def reused_id(on: Bench) -> Finding:
    """Delete a workflow and use its id again: the new one must not get the old one's results."""
    on.bodies["reused"] = lambda: "old"
    on.start("reused").get_result()
    DBOS.delete_workflow("reused")
    on.bodies["reused"] = lambda: "new"
    found = on.start("reused").get_result()
    return Finding("#769", found == "new", f"the second use gave the {found} result")


def broken_delete(on: Bench) -> Finding:
    """Break a deletion in its middle: all of the workflow must be there, or nothing of it."""
    on.bodies["kept"] = lambda: "kept"
    on.start("kept").get_result()
    on.query(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'broken on purpose'; END$$"
    )
    on.query(
        "CREATE TRIGGER refuse BEFORE DELETE ON dbos.workflow_status"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with suppress(DBAPIError):
        DBOS.delete_workflow("kept")
    on.query("DROP TRIGGER refuse ON dbos.workflow_status")
    left = {
        table: on.query(f"SELECT count(*) FROM dbos.{table} WHERE workflow_uuid = 'kept'")[0][0]
        for table in ("workflow_status", "workflow_output", "operation_outputs")
    }
    return Finding("#769", set(left.values()) == {1}, f"rows left: {left}")


def late_end(on: Bench) -> Finding:
    """Hand a workflow to another owner while it runs: the first one's end must be refused."""
    began, go = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        go.wait(_DEADLINE_S)
        return "of the first owner"

    on.bodies["late"] = slow
    handle = on.start("late")
    began.wait(_DEADLINE_S)
    on.query("UPDATE dbos.workflow_status SET owner_xid = 'other' WHERE workflow_uuid = 'late'")
    go.set()
    # refused, the first owner's thread waits for the other's result
    threading.Event().wait(_PAUSE_S)
    ((status, owner),) = on.query(
        "SELECT status, owner_xid FROM dbos.workflow_status WHERE workflow_uuid = 'late'"
    )
    outputs = on.query("SELECT 1 FROM dbos.workflow_output WHERE workflow_uuid = 'late'")
    on.query("UPDATE dbos.workflow_status SET status = 'CANCELLED' WHERE workflow_uuid = 'late'")
    with suppress(Exception):  # that it was cancelled
        handle.get_result()
    holds = status == "PENDING" and owner == "other" and not outputs
    return Finding("#544", holds, f"status {status}, owner {owner}, {len(outputs)} output(s)")


def stale_recovery(on: Bench) -> Finding:
    """Ask for recovery of a worker whose workflow a live one has meanwhile: nothing may happen."""
    began, go = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        go.wait(_DEADLINE_S)
        return "once"

    on.bodies["stale"] = slow
    handle = on.start("stale")
    began.wait(_DEADLINE_S)
    for _ in range(3):
        DBOS._recover_pending_workflows(["somebody dead"])  # noqa: SLF001 - what is checked
    go.set()
    handle.get_result()
    ran = on.runs["stale"]
    return Finding("#742", ran == 1, f"3 late recoveries, {ran} run(s)")


CHECKS = (same_id_at_once, reused_id, broken_delete, late_end, stale_recovery)
