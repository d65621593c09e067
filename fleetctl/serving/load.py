"""Sessions against a server: all started behind one barrier, each closed-loop, all recorded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from fleetctl.serving.client import ByteBudget, Due, StreamClient
from fleetctl.serving.health import HealthMeter
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import TranscriptFailed, TranscriptSink
from fleetctl.trial.classes import classifier_version
from fleetctl.trial.dialogue import follow_up, truth_of
from fleetctl.trial.events import RECORD_SCHEMA, Exchange, SessionRecord, to_json
from fleetctl.trial.exposure import RoundStats, round_stats
from fleetctl.trial.outcome import SessionOutcome, classify
from fleetctl.trial.scenario import (
    SCENARIO_VERSION,
    Calibration,
    Scenario,
    build_scenario,
    first_messages,
    request_body,
)
from fleetctl.trial.summary import ClientHealth
from fleetctl.trial.workload import ToolcallWorkload


@dataclass(frozen=True)
class TrialPlan:
    """One trial of one arm, fully determined.

    Attributes:
        workload: what the sessions do.
        target: where.
        root_seed: seed of the experiment; both arms have the same.
        run_index: number of the run; run k of both arms has the same requests in round 1.
        calibration: how tokens become words; the same for both arms.
        labels: what is recorded with every session, such as arm and host.
    """

    workload: ToolcallWorkload
    target: Target
    root_seed: int = 0
    run_index: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardResult:
    """What one client process saw.

    Attributes:
        outcomes: of the sessions it drove.
        rounds: their requests in numbers.
        health: its own.
        faults: why the trial can't be used, as far as this process knows.
    """

    outcomes: tuple[SessionOutcome, ...]
    rounds: tuple[tuple[RoundStats, ...], ...]
    health: ClientHealth
    faults: tuple[str, ...]


POLL_S = 0.1

OnOutcome = Callable[[SessionOutcome], None]
Settled = tuple[SessionOutcome, str]


async def drive(
    plan: TrialPlan,
    sessions: Sequence[int],
    sink: TranscriptSink,
    *,
    barrier: Callable[[], Awaitable[float]],
    on_outcome: OnOutcome,
    is_stopped: Callable[[], bool],
) -> ShardResult:
    """Run these sessions of a trial to their ends.

    However it ends (also by cancelling this coroutine), each session leaves its record.

    Args:
        plan: the trial.
        sessions: indices of the sessions to run here.
        sink: takes each session's record as soon as it has ended.
        barrier: awaited when all is prepared; returns the moment to start, on the loop's clock.
        on_outcome: called for each session that has ended.
        is_stopped: when it says yes, the sessions end at once.
    """
    sink.write(head_line(plan))
    scenarios = [_scenario(plan, session) for session in sessions]
    with ThreadPoolExecutor(1, "transcripts") as writer:
        async with StreamClient(plan.target, plan.workload.limits) as client:
            run = _Run(plan, client, sink, writer, on_outcome)
            stopper = asyncio.create_task(_stop_when(is_stopped, run))
            try:
                return await run.all(scenarios, barrier)
            finally:
                stopper.cancel()


def head_line(plan: TrialPlan) -> dict[str, Any]:
    """Return what a transcript file begins with: all that determines the trial."""
    return {
        "kind": "trial",
        "schema": RECORD_SCHEMA,
        "scenario": SCENARIO_VERSION,
        "workload": asdict(plan.workload),
        "url": plan.target.shown_url,
        "model": plan.target.model,
        "root_seed": plan.root_seed,
        "run_index": plan.run_index,
        "calibration": asdict(plan.calibration),
        "labels": plan.labels,
        "classifier": classifier_version(),
    }


async def _stop_when(is_stopped: Callable[[], bool], run: _Run) -> None:
    while not is_stopped():
        await asyncio.sleep(POLL_S)
    run.stop("the trial was stopped")


class _Run:
    """The state of a trial while it runs in this process."""

    def __init__(
        self,
        plan: TrialPlan,
        client: StreamClient,
        sink: TranscriptSink,
        writer: ThreadPoolExecutor,
        on_outcome: OnOutcome,
    ) -> None:
        self._plan = plan
        self._client = client
        self._sink = sink
        self._writer = writer
        self._on_outcome = on_outcome
        self._start = asyncio.Event()
        self._barrier_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._outcomes: list[SessionOutcome] = []
        self._rounds: list[tuple[RoundStats, ...]] = []
        self._faults: list[str] = []

    async def all(
        self, scenarios: Sequence[Scenario], barrier: Callable[[], Awaitable[float]]
    ) -> ShardResult:
        meter = HealthMeter()
        self._tasks = [asyncio.create_task(self._session(scenario)) for scenario in scenarios]
        try:
            self._barrier_s = await barrier()
            await asyncio.sleep(self._barrier_s - asyncio.get_running_loop().time())
            meter.start()
            self._start.set()
            # not gather(): it would cancel the sessions before they know that they must record
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.stop("the trial was interrupted")
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            # a session that was stopped before its first step has seen nothing
            if not task.cancelled():
                task.result()
        return ShardResult(
            tuple(self._outcomes), tuple(self._rounds), await meter.stop(), tuple(self._faults)
        )

    def stop(self, fault: str) -> None:
        """End the sessions that still run; each leaves the record of what it has seen."""
        others = [t for t in self._tasks if not t.done() and t is not asyncio.current_task()]
        if self._client.is_aborting or not others:
            return
        self._faults.append(fault)
        self._client.abort()
        for task in others:
            task.cancel()

    async def _session(self, scenario: Scenario) -> None:
        exchanges: list[Exchange] = []
        rounds: list[RoundStats] = []
        try:
            await self._converse(scenario, exchanges, rounds)
        except asyncio.CancelledError:
            if not self._client.is_aborting:
                raise
        await self._settle(scenario, tuple(exchanges), tuple(rounds))

    async def _converse(
        self, scenario: Scenario, exchanges: list[Exchange], rounds: list[RoundStats]
    ) -> None:
        """Talk until the scenario is over; what was seen is in the lists, however it ends."""
        plan = self._plan
        loop = asyncio.get_running_loop()
        budget = ByteBudget()
        messages = first_messages(scenario)
        await self._start.wait()
        due_s = self._barrier_s
        for round_number in range(1, plan.workload.rounds + 1):
            due_s += scenario.think_times_s[round_number - 1]
            await asyncio.sleep(due_s - loop.time())
            seed = scenario.request_seeds[round_number - 1]
            body = request_body(
                plan.workload, model=plan.target.model, messages=messages, request_seed=seed
            )
            intended_at_s = due_s - self._barrier_s
            due = Due(round_number, body, plan.workload.stream, intended_at_s, self._barrier_s)
            exchange, reply = await self._client.exchange(due, budget)
            exchanges.append(exchange)
            rounds.append(round_stats(exchange, reply))
            following = follow_up(scenario, exchange, reply)
            if following is None or self._client.is_aborting:
                return
            messages = [*messages, *following]
            due_s = loop.time()

    async def _settle(
        self,
        scenario: Scenario,
        exchanges: tuple[Exchange, ...],
        rounds: tuple[RoundStats, ...],
    ) -> None:
        """Classify and record a session that has ended, off the event loop."""
        plan = self._plan
        truth = truth_of(
            scenario, plan.workload, root_seed=plan.root_seed, run_index=plan.run_index
        )
        record = SessionRecord(scenario.session, truth, exchanges, plan.labels)
        settling = asyncio.get_running_loop().run_in_executor(
            self._writer, _classify_and_write, record, self._sink
        )
        outcome, fault = await _to_the_end(settling)
        self._outcomes.append(outcome)
        self._rounds.append(rounds)
        self._on_outcome(outcome)
        if fault:
            self.stop(fault)


async def _to_the_end(future: asyncio.Future[Settled]) -> Settled:
    """Wait for a result even when cancelled meanwhile: a record must not be lost."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(future)
    return future.result()


def _classify_and_write(record: SessionRecord, sink: TranscriptSink) -> tuple[SessionOutcome, str]:
    outcome = classify(record)
    line = to_json(record)
    line["outcome"] = asdict(outcome)
    line["classifier"] = classifier_version()
    try:
        sink.write(line)
    except TranscriptFailed as error:
        return outcome, str(error)
    return outcome, ""


def _scenario(plan: TrialPlan, session: int) -> Scenario:
    return build_scenario(
        plan.workload,
        root_seed=plan.root_seed,
        run_index=plan.run_index,
        session=session,
        calibration=plan.calibration,
    )
