"""A trial in shards says exactly what one client says of the same sessions, or it is invalid."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.serving.load import ShardResult, TrialPlan
from fleetctl.serving.shard import (
    LostShard,
    Part,
    from_bytes,
    local_start_s,
    merged,
    run_shard,
    to_bytes,
)
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import NoTranscripts, TranscriptFolder, read_transcripts
from fleetctl.serving.trial import run_trial
from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.exposure import RoundStats
from fleetctl.trial.outcome import SessionOutcome
from fleetctl.trial.summary import ClientHealth
from fleetctl.trial.workload import Limits, ToolcallWorkload

HEALTHY = ClientHealth(1, 0.1, 1.0, 2.0, 3.0)


def plan_of(sessions: int, url: str = "http://nowhere") -> TrialPlan:
    workload = ToolcallWorkload(sessions=sessions, context_tokens=40, limits=Limits(total_s=20))
    return TrialPlan(workload, Target(url, "fake"), root_seed=5, labels={"arm": "control"})


@dataclass
class Meeting:
    """A barrier in one process: all begin when the last is ready."""

    parts: int
    waiting: int = 0
    start_s: float | None = None
    is_given_up: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ready(self) -> None:
        with self.lock:
            self.waiting += 1
            if self.waiting == self.parts:
                self.start_s = time.monotonic() + 0.3

    def start_at_s(self) -> float | None:
        return self.start_s

    def is_off(self) -> bool:
        return self.is_given_up


def requests_of(folder: TranscriptFolder) -> dict[tuple[int, int], str]:
    """Return the first request of every session: later ones hold the server's own words."""
    lines = [line for file in folder.files() for line in read_transcripts(file)]
    return {
        (line["session"], exchange["round"]): exchange["request"]
        for line in lines
        if line["kind"] == "session"
        for exchange in line["exchanges"]
        if exchange["round"] == 1
    }


def test_shards_send_what_one_client_sends_and_make_the_same_trial(serve, tmp_path):
    server = serve(first_delay_s=0.3)
    plan = plan_of(7, server.url)
    alone = run_trial(plan, store=TranscriptFolder(tmp_path / "one"), processes=1)
    meeting, results = Meeting(3), {}

    def drive(shard: int) -> None:
        store = TranscriptFolder(tmp_path / "three")
        ended = run_shard(plan, Part(shard, 3), store, meeting, lambda outcome: None)
        results[shard] = from_bytes(to_bytes(ended))

    threads = [threading.Thread(target=drive, args=[shard]) for shard in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    together = merged(plan, list(results.values()), [])

    assert together.outcomes == alone.outcomes
    assert together.counts == alone.counts
    assert together.exposure.requests == alone.exposure.requests == 21
    assert together.exposure.peak_concurrency == 7
    assert together.client.processes == 3
    one, three = (requests_of(TranscriptFolder(tmp_path / name)) for name in ("one", "three"))
    assert one == three
    assert len(three) == 7


def test_a_trial_that_is_given_up_ends_the_client_process_at_once(serve):
    server = serve(delay_s=30)
    meeting = Meeting(2, is_given_up=False)
    given_up = threading.Timer(1.5, setattr, [meeting, "is_given_up", True])
    given_up.start()

    ended = run_shard(
        plan_of(4, server.url), Part(0, 2), NoTranscripts(), meeting, lambda outcome: None
    )
    given_up.join()

    assert ended == LostShard(Part(0, 2), "the trial was given up")


def test_a_lost_shard_makes_the_trial_invalid_and_not_smaller():
    plan = plan_of(10)
    here = shard_of(plan, Part(0, 2), [1.0] * 5)

    trial = merged(plan, [here], [LostShard(Part(1, 2), "its worker was silent")])

    assert not trial.is_valid
    assert trial.sessions == 10
    assert trial.count_of[OutcomeClass.INFRA] == 5
    assert any(
        "shard 2 of 2 was lost with 5 sessions: its worker was silent" in reason
        for reason in trial.invalid_because
    )
    nothing = merged(plan, [], [LostShard(Part(n, 2), "away") for n in range(2)])
    assert not nothing.is_valid


@given(
    st.lists(st.floats(0.001, 100), min_size=2, max_size=60),
    st.integers(2, 9),
)
def test_percentiles_are_those_of_all_requests_however_they_were_dealt_out(ttfts_s, shards):
    plan = plan_of(len(ttfts_s))
    shards = min(shards, len(ttfts_s))
    alone = merged(plan, [shard_of(plan, Part(0, 1), ttfts_s)], [])
    parts = [Part(shard, shards) for shard in range(shards)]
    dealt = [shard_of(plan, part, [ttfts_s[i] for i in part.sessions(plan)]) for part in parts]

    together = merged(plan, dealt, [])

    same = replace(
        together.exposure,
        concurrency_s=pytest.approx(alone.exposure.concurrency_s),
        mean_concurrency=pytest.approx(alone.exposure.mean_concurrency),
        busy_concurrency=pytest.approx(alone.exposure.busy_concurrency),
    )
    assert same == alone.exposure
    assert together.outcomes == alone.outcomes


def test_a_common_clock_is_read_through_half_of_the_round_trip():
    before_s = time.monotonic()

    start_s, error_s = local_start_s(lambda: 10.0)

    assert before_s + 10 <= start_s <= time.monotonic() + 10
    assert 0 <= error_s < 1


def shard_of(plan: TrialPlan, part: Part, ttfts_s: list[float]) -> ShardResult:
    sessions = list(part.sessions(plan))
    return ShardResult(
        outcomes=tuple(SessionOutcome(session, OutcomeClass.DONE) for session in sessions),
        rounds=tuple(
            (RoundStats(0.0, 0.0, ttft_s + 1, ttft_s, 10, 5, None, 5, True),) for ttft_s in ttfts_s
        ),
        health=HEALTHY,
        faults=(),
    )
