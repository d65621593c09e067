"""Several client processes as one: they start behind one barrier and end together."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from fleetctl.errors import FleetError
from fleetctl.serving.load import OnOutcome, ShardResult, TrialPlan, drive
from fleetctl.serving.transcripts import TranscriptSink, TranscriptStore
from fleetctl.trial.outcome import SessionOutcome

BARRIER_DELAY_S = 0.05  # enough for every process to have heard of it
ABORT_PATIENCE_S = 10.0
POLL_S = 0.1


@dataclass(frozen=True)
class Ready:
    """A client process has prepared its sessions."""


@dataclass(frozen=True)
class Failed:
    """A client process could not go on."""

    why: str


Message = Ready | Failed | SessionOutcome | ShardResult


def run_in_processes(
    plan: TrialPlan,
    store: TranscriptStore,
    shards: int,
    on_outcome: OnOutcome,
    is_stopped: Callable[[], bool],
) -> tuple[list[ShardResult], tuple[str, ...]]:
    """Deal the sessions out to processes; return what each saw, and what went wrong.

    A process that dies takes its sessions with it: the others' results still count, and the
    fault is named.
    """
    context = multiprocessing.get_context("spawn")
    crew: list[tuple[BaseProcess, Connection]] = []
    try:
        for shard in range(shards):
            ours, theirs = context.Pipe()
            mine = range(shard, plan.workload.sessions, shards)
            process = context.Process(
                target=client_process, args=(plan, mine, store, shard, theirs), daemon=True
            )
            process.start()
            theirs.close()
            crew.append((process, ours))
        gathering = _Gathering([connection for _, connection in crew], on_outcome)
        while gathering.is_running and not is_stopped():
            gathering.take_next()
        return gathering.results, tuple(gathering.faults)
    finally:
        dismiss(crew)


class _Gathering:
    """What the client processes have said so far."""

    def __init__(self, connections: Sequence[Connection], on_outcome: OnOutcome) -> None:
        self._waiting = set(connections)
        self._running = set(connections)
        self._on_outcome = on_outcome
        self.results: list[ShardResult] = []
        self.faults: list[str] = []

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def take_next(self) -> None:
        """Take what has come within a moment."""
        for connection in [
            c for c in wait(list(self._running), POLL_S) if isinstance(c, Connection)
        ]:
            self._take(connection, receive(connection))

    def _take(self, connection: Connection, message: Message) -> None:
        match message:
            case Ready():
                self._ready(connection)
            case SessionOutcome():
                self._on_outcome(message)
            case ShardResult():
                self.results.append(message)
                self._running.discard(connection)
            case Failed(why=why):
                self.faults.append(f"a client process failed: {why}")
                self._running.discard(connection)
                self._ready(connection)

    def _ready(self, connection: Connection) -> None:
        """Start everybody as soon as nobody prepares any more."""
        if connection not in self._waiting:
            return
        self._waiting.discard(connection)
        if not self._waiting:
            # CLOCK_MONOTONIC is one clock for all processes of a machine
            start_s = time.monotonic() + BARRIER_DELAY_S
            for other in self._running:
                with contextlib.suppress(OSError):
                    other.send(start_s)


def receive(connection: Connection) -> Message:
    """Return what a client process says next; that it died is an answer, too."""
    try:
        message: Message = connection.recv()
    except (EOFError, OSError):
        return Failed("it died")
    return message


def dismiss(crew: Sequence[tuple[BaseProcess, Connection]]) -> None:
    """End client processes that still run: they stop by themselves when their pipe closes."""
    for _, connection in crew:
        connection.close()
    for process, _ in crew:
        process.join(ABORT_PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()


def client_process(
    plan: TrialPlan,
    sessions: Sequence[int],
    store: TranscriptStore,
    shard: int,
    connection: Connection,
) -> None:
    """Run one shard; the operator's Ctrl-C reaches it through the pipe, from the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sink = store.open(shard)
        try:
            result = asyncio.run(_drive_shard(plan, sessions, sink, connection))
        finally:
            sink.close()
        _send(connection, result)
    except asyncio.CancelledError:
        return
    except FleetError as error:
        _send(connection, Failed(str(error)))


async def _drive_shard(
    plan: TrialPlan, sessions: Sequence[int], sink: TranscriptSink, connection: Connection
) -> ShardResult:
    loop = asyncio.get_running_loop()
    start: asyncio.Future[float] = loop.create_future()
    parent_left = False

    def hear() -> None:
        nonlocal parent_left
        try:
            start.set_result(connection.recv())
        except (EOFError, OSError):
            parent_left = True
            loop.remove_reader(connection.fileno())
            start.cancel()

    async def barrier() -> float:
        _send(connection, Ready())
        return await start

    loop.add_reader(connection.fileno(), hear)
    try:
        return await drive(
            plan,
            sessions,
            sink,
            barrier=barrier,
            on_outcome=lambda outcome: _send(connection, outcome),
            is_stopped=lambda: parent_left,
        )
    finally:
        loop.remove_reader(connection.fileno())


def _send(connection: Connection, message: Message) -> None:
    """Tell the parent; when it has left, the record on disk must do."""
    with contextlib.suppress(OSError):
        connection.send(message)
