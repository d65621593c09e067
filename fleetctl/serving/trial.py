"""A whole trial: sessions spread over as many client processes as they need, one result.

One process drives about 60 streams comfortably; beyond that, or when asked, the sessions are
dealt out to several, which start behind one barrier.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from typing import Protocol

from fleetctl.errors import InternalError, Interrupted
from fleetctl.serving.health import worst_of
from fleetctl.serving.load import OnOutcome, ShardResult, TrialPlan, drive
from fleetctl.serving.processes import run_in_processes
from fleetctl.serving.transcripts import TranscriptFolder, TranscriptStore
from fleetctl.trial.summary import TrialResult, summarise

SESSIONS_PER_PROCESS = 60


class Driver(Protocol):
    """Runs one trial to its end: on this machine, or spread over several."""

    def __call__(
        self,
        plan: TrialPlan,
        *,
        store: TranscriptFolder,
        on_outcome: OnOutcome,
        is_stopped: Callable[[], bool],
    ) -> TrialResult:
        """Return what the trial says; see `run_trial`."""
        ...


def run_trial(
    plan: TrialPlan,
    *,
    store: TranscriptStore,
    processes: int | None = None,
    on_outcome: OnOutcome = lambda outcome: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> TrialResult:
    """Run one trial to its end and return what it says; blocks.

    Nothing that a server does raises: it becomes an outcome. A trial that the client could not
    drive, or could not record, is returned as invalid with the reasons.

    Args:
        plan: what to do, where, with which seed.
        store: keeps the transcripts.
        processes: client processes; by default one per 60 sessions, at most one per core.
        on_outcome: called for each session that has ended.
        is_stopped: asked several times a second; when it says yes, the sessions end at once.

    Raises:
        TranscriptFailed: the transcripts could not even be opened.
        Interrupted: `is_stopped` said so; sessions so far are recorded.
        KeyboardInterrupt: the operator stopped it; sessions so far are recorded.
    """
    sessions = plan.workload.sessions
    shards = min(sessions, processes or _default_processes(sessions))
    faults: tuple[str, ...] = ()
    if shards == 1:
        results = [_run_here(plan, store, on_outcome, is_stopped)]
    else:
        results, faults = run_in_processes(plan, store, shards, on_outcome, is_stopped)
    if is_stopped():
        raise Interrupted(
            "the trial was stopped",
            why="an end was asked for",
            next_step="its transcripts so far are kept; repeat the trial",
        )
    if not results:
        raise InternalError(
            "no client process survived", why="; ".join(faults), next_step="repeat the trial"
        )
    return summarise(
        sessions=sessions,
        outcomes=[outcome for result in results for outcome in result.outcomes],
        rounds=[rounds for result in results for rounds in result.rounds],
        client=worst_of([result.health for result in results]),
        wanted_concurrency=sessions,
        also_invalid=dict.fromkeys([*faults, *(f for result in results for f in result.faults)]),
    )


def _default_processes(sessions: int) -> int:
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, math.ceil(sessions / SESSIONS_PER_PROCESS)))


def _run_here(
    plan: TrialPlan,
    store: TranscriptStore,
    on_outcome: OnOutcome,
    is_stopped: Callable[[], bool],
) -> ShardResult:
    async def barrier() -> float:
        return asyncio.get_running_loop().time()

    sink = store.open(0)
    everyone = range(plan.workload.sessions)
    try:
        return asyncio.run(
            drive(
                plan,
                everyone,
                sink,
                barrier=barrier,
                on_outcome=on_outcome,
                is_stopped=is_stopped,
            )
        )
    finally:
        sink.close()
