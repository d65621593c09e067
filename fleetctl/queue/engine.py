"""The durable engine, DBOS, behind a few words: board, begin, end.

A cell is a workflow. It waits on a queue that nobody listens to, the board. Whoever takes it moves
it to a queue of their own; there the engine claims it, and its body waits until the caller says
how it ended. The engine records the end once, and only from the execution that owns the workflow.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self

from fleetctl.errors import QueueError
from fleetctl.queue.address import Address, connect_options
from fleetctl.queue.database import missing_extra
from fleetctl.queue.schema import BOARD

# what is written under it can be read by every worker of the same version
APPLICATION = "fleetctl"
WIRE_VERSION = "fleetctl-queue-1"
_POOL = 3
_START_PATIENCE_S = 120.0
# a cell that takes its worker down each time fails in the end
_MOST_ATTEMPTS = 100
_in_this_process = threading.Lock()


@dataclass(frozen=True)
class Output:
    """A workflow ended well."""

    value: Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """A workflow ended without a result."""

    why: str


class Away(BaseException):
    """The workflow is somebody else's now: nothing is recorded.

    No `Exception`: the engine would record that as the workflow's end.
    """


class CellFailed(Exception):
    """How the engine is told that a workflow ended without a result."""


@dataclass(frozen=True)
class Record:
    """What the engine knows of a workflow; status is its own word."""

    status: str
    executor: str
    output: Mapping[str, Any] | None


class Engine:
    """DBOS in this process; a process has one at a time."""

    def __init__(self, address: Address, worker: str, *, poll_s: float = 0.5) -> None:
        """Join the engine's database, making its tables where they are missing.

        Args:
            address: of the database.
            worker: unique name of this process; also of the queue that it alone listens to.
            poll_s: how often that queue is looked at.

        Raises:
            QueueError: the database can't be used, or this process has an engine already.
            InputError: the packages are not installed.
        """
        self.worker = worker
        self._begun: dict[str, _Execution] = {}
        self._changed = threading.Condition()
        if not _in_this_process.acquire(blocking=False):
            raise QueueError(
                "this process has a queue open already",
                why="the engine can be started once per process",
                next_step="close the other one first",
            )
        try:
            self._dbos = _imported()
            self._launch(address, poll_s)
        except BaseException:
            _in_this_process.release()
            raise

    def _launch(self, address: Address, poll_s: float) -> None:
        dbos = self._dbos
        logging.getLogger("dbos").setLevel(logging.CRITICAL)
        dbos.DBOS(config=_config(address, self.worker))
        self._workflow = dbos.DBOS.workflow(name="cell", max_recovery_attempts=_MOST_ATTEMPTS)(
            self._body()
        )
        dbos.DBOS.listen_queues([self.worker])
        try:
            dbos.DBOS.launch()
            self._board = dbos.DBOS.register_queue(BOARD, on_conflict="always_update")
            dbos.DBOS.register_queue(self.worker, polling_interval_sec=poll_s)
        except Exception as error:
            dbos.DBOS.destroy(destroy_registry=True)
            raise QueueError(
                f"the queue at {address} can't be used",
                why=(str(error).strip().splitlines() or [type(error).__name__])[0],
                next_step="see that the database is up and takes our login; then try again",
            ) from error

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the engine."""
        self.close()

    def close(self) -> None:
        """Leave; workflows under way stay with our name until somebody declares us lost."""
        with self._changed:
            waiting = list(self._begun.values())
            self._begun.clear()
        for execution in waiting:
            execution.slot.set_exception(Away())
        self._dbos.DBOS.destroy(destroy_registry=True)
        _in_this_process.release()

    def put(self, workflow: str) -> None:
        """Let a workflow wait on the board; one that is known stays what it is."""
        with self._dbos.SetWorkflowID(workflow):
            self._board.enqueue(self._workflow)

    def hand_out(self, workflow: str, attempt: int) -> bool:
        """Wait until a workflow that was moved to our queue runs here; False if it does not."""

        def has_begun() -> bool:
            # an execution of an earlier attempt may still be here, when we had been declared lost
            return workflow in self._begun and self._begun[workflow].attempt in (None, attempt)

        with self._changed:
            if not self._changed.wait_for(has_begun, _START_PATIENCE_S):
                return False
            self._begun[workflow].attempt = attempt
            return True

    def is_handed_out(self, workflow: str, attempt: int) -> bool:
        """Whether this attempt is the one that runs here, and nobody has said how it ended."""
        with self._changed:
            return workflow in self._begun and self._begun[workflow].attempt == attempt

    def end(self, workflow: str, attempt: int, ending: Output | Failure | None) -> None:
        """Say how an attempt ended here; None lets go of it and records nothing."""
        with self._changed:
            if not self.is_handed_out(workflow, attempt):
                return
            execution = self._begun.pop(workflow)
        if ending is None:
            execution.slot.set_exception(Away())
        else:
            execution.slot.set_result(ending)

    def record(self, workflow: str) -> Record | None:
        """Return what the engine knows of a workflow."""
        found = self._dbos.DBOS.list_workflows(workflow_ids=[workflow], load_input=False)
        return _record_of(found[0]) if found else None

    def outputs(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """Return the outputs of workflows that ended well, by id."""
        found = self._dbos.DBOS.list_workflows(
            workflow_id_prefix=prefix, status="SUCCESS", load_input=False
        )
        return {status.workflow_id: status.output for status in found}

    def forget(self, workflows: Sequence[str]) -> None:
        """Delete workflows with all that is known of them."""
        self._dbos.DBOS.delete_workflows(list(workflows))

    def _body(self) -> Callable[[], Mapping[str, Any]]:
        """Return the workflow's function; the engine wants one that is no method."""

        def cell() -> Mapping[str, Any]:
            ending = self._wait_for_end(str(self._dbos.DBOS.workflow_id))
            if isinstance(ending, Failure):
                raise CellFailed(ending.why)
            return ending.value

        return cell

    def _wait_for_end(self, workflow: str) -> Output | Failure:
        execution = _Execution()
        with self._changed:
            before = self._begun.get(workflow)
            self._begun[workflow] = execution
            self._changed.notify_all()
        if before is not None:
            # we were declared lost and have taken it once more: the older execution is void
            before.slot.set_exception(Away())
        return execution.slot.result()


@dataclass
class _Execution:
    """A body that waits; its attempt is known once it was handed out."""

    attempt: int | None = None
    slot: Future[Output | Failure] = field(default_factory=Future)


def _config(address: Address, worker: str) -> dict[str, Any]:
    return {
        "name": APPLICATION,
        "system_database_url": address.for_engine,
        "executor_id": worker,
        "application_version": WIRE_VERSION,
        "log_level": "CRITICAL",
        "sys_db_pool_size": _POOL,
        "db_engine_kwargs": {
            "connect_args": connect_options(f"dbos {worker}"),
            "pool_pre_ping": True,
        },
        # a listening connection per worker is what a database of many workers runs out of first
        "use_listen_notify": False,
        "serializer": _serializer(),
    }


def _record_of(status: Any) -> Record:  # noqa: ANN401 - the engine's class
    output = status.output if isinstance(status.output, dict) else None
    return Record(str(status.status), str(status.executor_id or ""), output)


def _imported() -> Any:  # noqa: ANN401 - a module
    try:
        import dbos  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise missing_extra(error) from error
    return dbos


def _serializer() -> Any:  # noqa: ANN401 - its base comes with the extra
    """Return a serializer of plain JSON: what another machine wrote is never unpickled."""
    from dbos import Serializer  # noqa: PLC0415 - an extra, and slow to import

    class Json(Serializer):
        def serialize(self, data: Any) -> str:  # noqa: ANN401 - JSON is any of its types
            return json.dumps(data, ensure_ascii=False, default=str)

        def deserialize(self, serialized_data: str) -> Any:  # noqa: ANN401 - likewise
            return json.loads(serialized_data)

        def name(self) -> str:
            return "fleetctl_json"

    return Json()
