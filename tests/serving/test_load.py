"""The client measures itself, and says when it could not do what it was asked."""

from __future__ import annotations

import asyncio
import time

import pytest

from fleetctl.serving.calibrate import calibrate
from fleetctl.serving.health import HealthMeter, lower_percentile, worst_of
from fleetctl.serving.load import TrialPlan, head_line
from fleetctl.serving.probe import Answered, Unreachable
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import NoTranscripts
from fleetctl.serving.trial import run_trial
from fleetctl.trial.scenario import Calibration
from fleetctl.trial.summary import ClientHealth
from fleetctl.trial.workload import Limits, ToolcallWorkload


def test_a_blocked_event_loop_shows_as_lag_and_cpu():
    async def measure() -> ClientHealth:
        meter = HealthMeter()
        meter.start()
        for _ in range(5):
            await asyncio.sleep(0.03)
            block(0.2)
        return await meter.stop()

    health = asyncio.run(measure())
    assert health.loop_lag_max_ms >= health.loop_lag_p99_ms > 100
    assert health.cpu_share > 0


def test_one_hiccup_in_a_short_trial_is_no_99th_percentile():
    lags = [1.0] * 29
    assert lower_percentile([*lags, 500.0], 0.99) == 1.0
    assert lower_percentile([*lags, 400.0, 500.0], 0.99) == 400.0
    assert lower_percentile([7.0], 0.99) == 7.0


def test_the_worst_process_speaks_for_the_client():
    a, b = ClientHealth(1, 0.9, 1, 20, 30), ClientHealth(1, 0.2, 2, 10, 90)
    assert worst_of([a, b]) == ClientHealth(2, 0.9, 2, 20, 90)


def block(for_s: float) -> None:
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        pass


def test_a_stall_that_ends_with_the_trial_is_measured_too():
    async def measure() -> ClientHealth:
        meter = HealthMeter()
        meter.start()
        await asyncio.sleep(0.05)
        block(0.3)
        return await meter.stop()

    health = asyncio.run(measure())
    assert health.loop_lag_max_ms > 250
    assert 0.25 < health.stalled_s <= health.wall_s


@pytest.mark.parametrize("stops_s", [[0.3] * 8, [2.4], [0] * 7 + [2.4]])
def test_a_client_that_blocks_voids_its_trial_in_many_stops_or_in_one(serve, stops_s):
    server = serve(delay_s=0.02)
    left_s = iter(stops_s)
    plan = TrialPlan(ToolcallWorkload(sessions=8, rounds=1), Target(server.url, "fake"))
    result = run_trial(
        plan, store=NoTranscripts(), processes=1, on_outcome=lambda _: block(next(left_s, 0))
    )
    assert any("the client was overloaded" in reason for reason in result.invalid_because)


def test_the_transcript_head_determines_the_trial_and_hides_secrets():
    target = Target("http://user:word@host:1/v1", "m", "canary-key")
    plan = TrialPlan(
        ToolcallWorkload(limits=Limits(ttft_s=7)), target, 3, 4, Calibration(2.0, "usage")
    )
    head = head_line(plan)
    assert (head["root_seed"], head["run_index"], head["model"]) == (3, 4, "m")
    assert head["workload"]["limits"]["ttft_s"] == 7
    assert head["calibration"] == {"tokens_per_word": 2.0, "source": "usage"}
    assert head["url"] == "http://host:1/v1"
    assert "word" not in str(head["url"])
    assert "canary-key" not in f"{head}{target}"


class Tokens:
    """Answers with prompt sizes as a server would report them."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def port(self, *, deadline_s: float):
        raise AssertionError

    def get(self, path: str, *, deadline_s: float):
        raise AssertionError

    def chat(self, body: bytes, *, deadline_s: float):
        answer = self.answers.pop(0)
        if not isinstance(answer, int):
            return answer
        return Answered(200, b'{"choices": [], "usage": {"prompt_tokens": %d}}' % answer)


def test_calibration_is_the_slope_of_two_prompts():
    assert calibrate(Tokens(164, 548), "m") == Calibration(1.5, "usage")


def test_without_usable_usage_the_default_stays_and_is_marked_as_assumed():
    for answers in (
        (Answered(200, b'{"choices": []}'), 500),
        (500, 100),
        (Unreachable("no"), 500),
        (Answered(500), Answered(500)),
    ):
        assert calibrate(Tokens(*answers), "m").source == "assumed"


def test_the_served_models_tokens_decide_the_length_of_the_filler(serve):
    server = serve()
    from fleetctl.clock import SystemClock
    from fleetctl.serving.probe import TargetProbe

    calibration = calibrate(TargetProbe(Target(server.url, "fake"), SystemClock()), "fake")
    assert calibration.source == "usage"
    assert 1.0 < calibration.tokens_per_word < 3.0
