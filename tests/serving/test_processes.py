"""Several client processes: one dies, one can't write, the operator stops them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.errors import InternalError
from fleetctl.serving.load import TrialPlan
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
from fleetctl.trial.workload import ToolcallWorkload


@dataclass(frozen=True)
class Killing:
    """A store that kills the client process of one shard when its first session ends."""

    shard: int

    def open(self, shard: int):
        return self if shard == self.shard else NoTranscripts()

    def write(self, line: dict) -> None:
        if line["kind"] == "session":
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Refusing:
    """A store that can't be opened in some shards."""

    shards: tuple[int, ...]

    def open(self, shard: int):
        if shard in self.shards:
            raise TranscriptFailed("no", why="Read-only file system", next_step="")
        return NoTranscripts()


def trial(url: str, store, sessions: int = 6):
    plan = TrialPlan(ToolcallWorkload(sessions=sessions), Target(url, "fake"))
    return run_trial(plan, store=store, processes=2)


def test_a_client_process_that_is_killed_costs_its_sessions_and_voids_the_trial(serve):
    result = trial(serve().url, Killing(shard=1))
    assert sum(count for _, count in result.counts) == 6
    assert result.count_of["done"] == 3
    assert result.count_of["infra"] == 3
    assert "a client process failed: it died" in result.invalid_because
    assert "3 of 6 sessions were never recorded" in result.invalid_because


def test_a_process_that_can_not_record_says_why_and_the_others_go_on(serve):
    result = trial(serve().url, Refusing((0,)))
    assert result.count_of["done"] == 3
    assert any("Read-only file system" in reason for reason in result.invalid_because)


def test_without_any_process_left_there_is_no_result(serve):
    with pytest.raises(InternalError) as caught:
        trial(serve().url, Refusing((0, 1)))
    assert "Read-only file system" in caught.value.why


def test_the_only_process_that_can_not_record_raises(serve):
    plan = TrialPlan(ToolcallWorkload(sessions=1), Target(serve().url, "fake"))
    with pytest.raises(TranscriptFailed):
        run_trial(plan, store=Refusing((0,)), processes=1)


@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_ends_the_command_with_130_and_every_session_recorded(serve, tmp_path, processes):
    server = serve(delay_s=20)
    argv = [sys.executable, "-m", "fleetctl", "repro", "--url", server.url, "--sessions", "4"]
    argv += ["--model", "fake", "--out", str(tmp_path), "--processes", str(processes)]
    with subprocess.Popen(
        argv, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        # two requests calibrate, then every session has one under way
        while len(server.behaviour.seen) < 6 and command.poll() is None:
            time.sleep(0.05)
        os.killpg(command.pid, signal.SIGINT)
        said = command.communicate(timeout=30)[1]
    assert command.returncode == 130, said
    assert "Traceback" not in said
    records = sessions_in(tmp_path)
    assert sorted(record.session for record in records) == [0, 1, 2, 3]
    assert {classify(record).outcome for record in records} == {"infra"}


def sessions_in(folder: Path) -> list:
    lines = [line for file in TranscriptFolder(folder).files() for line in read_transcripts(file)]
    return [from_json(line) for line in lines if line["kind"] == "session"]
