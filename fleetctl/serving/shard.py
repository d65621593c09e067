"""A part of one trial's sessions, driven elsewhere; and the parts made one trial again.

Sessions are dealt out by index. What a session says depends on seed, run and index only, so that
any number of shards sends the same requests. What comes back is every session's outcome and every
request's times: sums and percentiles are made once, of all of them. A shard that is lost makes
the trial invalid, never smaller.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from fleetctl.serving.health import worst_of
from fleetctl.serving.load import OnOutcome, ShardResult, TrialPlan
from fleetctl.serving.processes import Failed, Ready, client_process, dismiss, receive
from fleetctl.serving.transcripts import TranscriptStore
from fleetctl.trial.exposure import RoundStats
from fleetctl.trial.outcome import SessionOutcome
from fleetctl.trial.summary import ClientHealth, TrialResult, outcome_from_json, summarise

_POLL_S = 0.2


@dataclass(frozen=True)
class Part:
    """Which shard of how many.

    Attributes:
        shard: from 0.
        shards: in all.
    """

    shard: int
    shards: int

    def sessions(self, plan: TrialPlan) -> range:
        """Return the indices of the sessions of this shard."""
        return range(self.shard, plan.workload.sessions, self.shards)


@dataclass(frozen=True)
class LostShard:
    """A shard that brought no result, and why."""

    part: Part
    why: str


class Barrier(Protocol):
    """What a shard needs to know of the others; asked several times a second."""

    def ready(self) -> None:
        """Say that the sessions are prepared."""
        ...

    def start_at_s(self) -> float | None:
        """Return when to begin, on this machine's monotonic clock; None before all are ready."""
        ...

    def is_off(self) -> bool:
        """Whether the trial was given up."""
        ...


def run_shard(
    plan: TrialPlan, part: Part, store: TranscriptStore, barrier: Barrier, on_outcome: OnOutcome
) -> ShardResult | LostShard:
    """Drive one shard in a client process of its own; blocks.

    Args:
        plan: the whole trial, with this machine's way to the service as its target.
        part: which sessions are ours.
        store: keeps their transcripts.
        barrier: the other shards.
        on_outcome: called for each session that has ended.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=client_process,
        args=(plan, part.sessions(plan), store, part.shard, theirs),
        daemon=True,
    )
    process.start()
    theirs.close()
    try:
        return _hear(ours, part, barrier, on_outcome)
    finally:
        dismiss([(process, ours)])


def _hear(
    pipe: Connection, part: Part, barrier: Barrier, on_outcome: OnOutcome
) -> ShardResult | LostShard:
    """Pass on what the client process says, and tell it when to begin."""
    is_prepared = has_begun = False
    while True:
        if is_prepared and not has_begun and (start_s := barrier.start_at_s()) is not None:
            pipe.send(start_s)
            has_begun = True
        if not pipe.poll(_POLL_S):
            if barrier.is_off():
                return LostShard(part, "the trial was given up")
            continue
        match receive(pipe):
            case Ready():
                is_prepared = True
                barrier.ready()
            case SessionOutcome() as outcome:
                on_outcome(outcome)
            case ShardResult() as result:
                return result
            case Failed(why=why):
                return LostShard(part, f"its client process failed: {why}")


def merged(
    plan: TrialPlan, results: Sequence[ShardResult], lost: Sequence[LostShard]
) -> TrialResult:
    """Return the result of the whole trial from its shards.

    Exactly what one client would have said of the same sessions: nothing is averaged. The client's
    health is that of its worst shard.
    """
    outcomes = [outcome for result in results for outcome in result.outcomes]
    faults = [
        f"shard {one.part.shard + 1} of {one.part.shards} was lost with "
        f"{len(one.part.sessions(plan))} sessions: {one.why}"
        for one in lost
    ]
    nobody = ClientHealth(0, 0.0, 0.0, 0.0, 0.0)
    return summarise(
        sessions=plan.workload.sessions,
        outcomes=outcomes,
        rounds=[rounds for result in results for rounds in result.rounds],
        client=worst_of([result.health for result in results]) if results else nobody,
        wanted_concurrency=plan.workload.sessions,
        also_invalid=dict.fromkeys([*faults, *(f for result in results for f in result.faults)]),
    )


def to_bytes(result: ShardResult) -> bytes:
    """Return a shard's result for the way home."""
    value = {
        "outcomes": [asdict(outcome) for outcome in result.outcomes],
        "rounds": [[list(vars(stats).values()) for stats in one] for one in result.rounds],
        "health": asdict(result.health),
        "faults": list(result.faults),
    }
    return gzip.compress(json.dumps(value, separators=(",", ":")).encode(), mtime=0)


def from_bytes(data: bytes) -> ShardResult:
    """Return what `to_bytes` was given.

    Raises:
        OSError, KeyError, TypeError, ValueError: it is something else.
    """
    value: Mapping[str, Any] = json.loads(gzip.decompress(data))
    return ShardResult(
        outcomes=tuple(outcome_from_json(outcome) for outcome in value["outcomes"]),
        rounds=tuple(tuple(RoundStats(*stats) for stats in one) for one in value["rounds"]),
        health=ClientHealth(**value["health"]),
        faults=tuple(value["faults"]),
    )


def local_start_s(ask: Callable[[], float]) -> tuple[float, float]:
    """Return when a common clock says to begin, on our monotonic clock, and the error of that.

    Args:
        ask: returns in how many seconds to begin, as the common clock has it.

    Returns:
        The moment, and half of the round trip it took to ask, both in seconds.
    """
    before_s = time.monotonic()
    in_s = ask()
    trip_s = time.monotonic() - before_s
    return before_s + trip_s / 2 + in_s, trip_s / 2
