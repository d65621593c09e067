"""A trial against servers of every kind: each ending is classified, nothing is lost."""

from __future__ import annotations

import multiprocessing
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from fleetctl.errors import Interrupted
from fleetctl.serving.client import SESSION_BYTES
from fleetctl.serving.load import TrialPlan
from fleetctl.serving.null_server import Pace, null_server
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import (
    NoTranscripts,
    TranscriptFailed,
    TranscriptFolder,
    read_transcripts,
)
from fleetctl.serving.trial import run_trial
from fleetctl.trial.events import from_json
from fleetctl.trial.outcome import classify
from fleetctl.trial.workload import Limits, ThinkKind, ThinkTime, ToolcallWorkload

PATIENT = Limits()
IMPATIENT = {  # one limit each, because the others would strike on a busy machine
    "silent": Limits(ttft_s=0.6),
    "drip": Limits(ttft_s=0.6),
    "stall": Limits(stall_s=0.4),
    "endless": Limits(total_s=1.2),
}


def trial(url: str, folder: Path, *, sessions: int = 6, processes: int = 1, **workload: object):
    limits = workload.pop("limits", PATIENT)
    plan = TrialPlan(
        ToolcallWorkload(sessions=sessions, limits=limits, context_tokens=40, **workload),
        Target(url, "fake"),
        root_seed=5,
        labels={"arm": "control"},
    )
    return run_trial(plan, store=TranscriptFolder(folder), processes=processes)


def recorded(folder: Path) -> list[dict]:
    lines = [line for file in TranscriptFolder(folder).files() for line in read_transcripts(file)]
    return [line for line in lines if line["kind"] == "session"]


def counts(result) -> dict[str, int]:
    return {str(outcome): count for outcome, count in result.counts if count}


@pytest.mark.parametrize("stream", [True, False])
def test_a_healthy_server_gives_a_clean_valid_trial(serve, tmp_path, stream):
    server = serve(first_delay_s=0.1)
    result = trial(server.url, tmp_path, stream=stream)
    assert counts(result) == {"done": 6}
    # the machine that runs the tests may be too busy, which is found; nothing else may be
    assert all("client was overloaded" in reason for reason in result.invalid_because)
    assert result.line() == (
        "CORRUPTION sessions: 0/6 = 0%  (leak=0 no_tool=0 error=0 ok-ish[done/maxrounds]=6)"
    )
    assert result.exposure.requests == result.exposure.rounds == 18
    assert result.exposure.peak_concurrency == 6
    assert len(server.behaviour.seen) == 18


@pytest.mark.parametrize(
    ("mode", "outcome", "flag"),
    [
        ("rate_limited", "infra", "rate_limited"),
        ("broken", "infra", "server_unavailable"),
        ("hang_up", "infra", "no_response"),
        ("bad_request", "error", "http_error"),
        ("killed", "error", "stream_cut"),
        ("torn", "error", "malformed_response"),
        ("error_event", "error", "server_error"),
        ("not_json", "error", "malformed_response"),
        ("gigabyte", "error", "too_large"),
        ("gigabyte_line", "error", "too_large"),
        ("silent", "timeout", "ttft_timeout"),
        ("drip", "timeout", "ttft_timeout"),
        ("stall", "timeout", "stall_timeout"),
        ("endless", "timeout", "total_timeout"),
        ("leaky", "leak", "leak_content"),
        ("refusing", "no_tool", "answered_instead"),
        ("empty", "garbage", "empty_reply"),
        ("wrong_value", "arg_mismatch", "wrong_arguments"),
    ],
)
def test_each_way_of_failing_has_its_class_and_its_record(serve, tmp_path, mode, outcome, flag):
    limits = IMPATIENT.get(mode, PATIENT)
    sessions = 1 if "giga" in mode else 3
    server = serve(mode=mode)
    result = trial(server.url, tmp_path, sessions=sessions, limits=limits)
    assert counts(result) == {outcome: sessions}
    assert all(flag in session.flags for session in result.outcomes)
    records = [from_json(line) for line in recorded(tmp_path)]
    assert {classify(record).outcome for record in records} == {outcome}
    assert sorted(record.session for record in records) == list(range(sessions))


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("broken", "error"), ("rate_limited", "infra"), ("killed", "error"), ("hang_up", "error")],
)
def test_the_same_failure_after_a_good_round_is_judged_by_what_came_before(
    serve, tmp_path, mode, outcome
):
    server = serve(mode=mode, from_round=2)
    result = trial(server.url, tmp_path, sessions=3)
    assert counts(result) == {outcome: 3}
    assert {session.round for session in result.outcomes} == {2}


def test_an_absent_server_is_infra_and_makes_the_trial_invalid_never_clean(tmp_path):
    result = trial("http://127.0.0.1:1", tmp_path, sessions=3)
    assert counts(result) == {"infra": 3}
    assert (result.counted, result.corrupted) == (0, 0)
    assert not result.is_valid
    assert "0/0 = n/a" in result.line()


def test_a_storm_of_429_is_infra_where_it_strikes_and_nothing_is_asked_twice(serve, tmp_path):
    server = serve(mode="storm", first_delay_s=0)
    result = trial(server.url, tmp_path, sessions=20)
    found = counts(result)
    assert found.keys() == {"infra", "done"}
    assert sum(found.values()) == 20
    assert result.corrupted == 0
    assert result.counted == found["done"]
    lost = [session for session in result.outcomes if session.outcome == "infra"]
    assert all("rate_limited" in session.flags for session in lost)
    assert len(server.behaviour.seen) <= 60
    assert len(recorded(tmp_path)) == 20


def test_a_server_that_is_killed_costs_sessions_but_no_record(tmp_path):
    with null_server(Pace(200, 50.0)) as url:
        (server,) = multiprocessing.active_children()
        killer = threading.Timer(0.7, server.kill)
        killer.start()
        result = trial(url, tmp_path, sessions=10)
        killer.join()
    found = counts(result)
    assert found.keys() <= {"error", "infra"}
    assert sum(found.values()) == 10
    assert (result.corrupted, len(recorded(tmp_path))) == (0, 10)
    flags = {flag for session in result.outcomes for flag in session.flags}
    assert flags <= {"stream_cut", "no_response", "connect_failed"}


def test_a_server_that_sends_a_gigabyte_costs_a_bounded_amount_of_memory(serve, tmp_path):
    server = serve(mode="gigabyte")
    sessions = 2
    tracemalloc.start()
    try:
        result = trial(server.url, tmp_path, sessions=sessions)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts(result) == {"error": sessions}
    # the raw bytes, their JSON line, and what is decoded while one record is classified
    assert peak_bytes < (sessions + 8) * SESSION_BYTES


def test_round_one_is_byte_identical_in_both_arms_and_unmoved_by_more_sessions(serve, tmp_path):
    control, treatment = serve(), serve()
    trial(control.url, tmp_path / "control", sessions=4)
    trial(treatment.url, tmp_path / "treatment", sessions=6)

    def first_rounds(server) -> set[bytes]:
        return {body for body in server.behaviour.bodies if b'"role":"tool"' not in body}

    assert len(first_rounds(control)) == 4
    assert first_rounds(control) < first_rounds(treatment)


def test_several_client_processes_make_one_trial(serve, tmp_path):
    server = serve(first_delay_s=0.2)
    result = trial(server.url, tmp_path, sessions=7, processes=2)
    assert counts(result) == {"done": 7}
    assert result.client.processes == 2
    assert result.exposure.peak_concurrency == 7
    assert len(TranscriptFolder(tmp_path).files()) == 2
    assert sorted(line["session"] for line in recorded(tmp_path)) == list(range(7))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_trial_that_is_stopped_before_it_began_is_stopped_and_no_bug(serve, processes):
    plan = TrialPlan(ToolcallWorkload(sessions=4, rounds=1), Target(serve().url, "fake"))

    with pytest.raises(Interrupted):
        run_trial(plan, store=NoTranscripts(), processes=processes, is_stopped=lambda: True)


@pytest.mark.parametrize("processes", [1, 2])
def test_stopping_a_trial_keeps_the_record_of_every_session(serve, tmp_path, processes):
    server = serve(delay_s=5)
    workload = ToolcallWorkload(sessions=4)
    started_s = time.monotonic()

    def is_stopped() -> bool:
        return len(server.behaviour.seen) == 4

    with pytest.raises(Interrupted):
        run_trial(
            TrialPlan(workload, Target(server.url, "fake")),
            store=TranscriptFolder(tmp_path),
            processes=processes,
            is_stopped=is_stopped,
        )
    assert time.monotonic() - started_s < 60
    records = [from_json(line) for line in recorded(tmp_path)]
    assert [record.exchanges[0].ended for record in records] == ["aborted"] * 4
    outcomes = [classify(record) for record in records]
    assert [outcome.outcome for outcome in outcomes] == ["infra"] * 4
    assert all("client_aborted" in outcome.flags for outcome in outcomes)


def test_a_trial_runs_in_a_thread_beside_others(serve, tmp_path):
    server = serve()
    results = []
    threads = [
        threading.Thread(target=lambda k=k: results.append(trial(server.url, tmp_path / str(k))))
        for k in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [counts(result) for result in results] == [{"done": 6}] * 2


def test_think_times_are_waited_and_do_not_count_as_concurrency(serve, tmp_path):
    server = serve()
    think = ThinkTime(ThinkKind.CONSTANT, mean_s=0.3)
    result = trial(server.url, tmp_path, sessions=2, think_time=think)
    assert counts(result) == {"done": 2}
    assert result.exposure.wall_s > 0.6
    assert result.exposure.concurrency_s < 2 * (result.exposure.wall_s - 0.6) + 0.2


class FullDisk:
    """A sink whose disk is full after some lines."""

    def __init__(self, room: int) -> None:
        self.room = room

    def open(self, shard: int) -> FullDisk:
        return self

    def write(self, line: dict) -> None:
        if self.room == 0:
            raise TranscriptFailed("no room", why="No space left on device", next_step="")
        self.room -= 1

    def close(self) -> None:
        pass


def test_a_full_disk_at_the_client_ends_the_trial_as_invalid_with_all_sessions_counted(serve):
    server = serve(delay_s=0.05)
    plan = TrialPlan(ToolcallWorkload(sessions=5), Target(server.url, "fake"))
    result = run_trial(plan, store=FullDisk(room=2))
    assert not result.is_valid
    assert "No space left on device" in " ".join(result.invalid_because)
    assert sum(count for _, count in result.counts) == 5
