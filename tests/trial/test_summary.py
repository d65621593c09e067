"""A trial's numbers: counts that add up, load as it was, and reasons to reject it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetctl.trial.classes import OutcomeClass, load_classes
from fleetctl.trial.events import Ended, Exchange
from fleetctl.trial.exposure import Exposure, RoundStats, exposure_of, percentile, round_stats
from fleetctl.trial.flags import Finding
from fleetctl.trial.outcome import SessionOutcome
from fleetctl.trial.people import parse_peoples_line, peoples_line
from fleetctl.trial.reply import Reply, Usage
from fleetctl.trial.summary import (
    ClientHealth,
    client_faults,
    result_from_json,
    result_to_json,
    summarise,
)

WELL = ClientHealth(1, 0.1, 1.0, 9.0, 30.0)


def stats(sent_s: float, finished_s: float, **fields: object) -> RoundStats:
    base = RoundStats(sent_s, sent_s, finished_s, 0.1, 100, 10, None, 10, is_answered=True)
    return replace(base, **fields)


def summary(outcomes: list[OutcomeClass], **fields: object):
    sessions = len(outcomes)
    given_fields = {
        "sessions": sessions,
        "outcomes": [SessionOutcome(n, outcome) for n, outcome in enumerate(outcomes)],
        "rounds": [[stats(0, 1)] for _ in outcomes],
        "client": WELL,
        "wanted_concurrency": sessions,
    }
    return summarise(**{**given_fields, **fields})


def test_the_peoples_line_is_as_people_know_it():
    result = summary(
        [OutcomeClass.LEAK] * 2 + [OutcomeClass.DONE] * 30 + [OutcomeClass.MAXROUNDS] * 8
    )
    assert result.line() == (
        "CORRUPTION sessions: 2/40 = 5%  (leak=2 no_tool=0 error=0 ok-ish[done/maxrounds]=38)"
    )
    assert result.is_valid


def test_finer_classes_and_infra_stand_beside_it():
    counts = {OutcomeClass.CROSS_TALK: 1, OutcomeClass.INFRA: 2, OutcomeClass.DONE: 3}
    assert peoples_line(1, 4, counts) == (
        "CORRUPTION sessions: 1/4 = 25%  (leak=0 no_tool=0 error=0 cross_talk=1 "
        "ok-ish[done/maxrounds]=3)  infra=2 (not counted)"
    )


@given(st.lists(st.sampled_from(OutcomeClass), min_size=1, max_size=60))
def test_all_counts_add_up_and_infra_is_neither_corrupt_nor_clean(outcomes):
    result = summary(outcomes)
    assert sum(count for _, count in result.counts) == len(outcomes) == result.sessions
    assert result.counted == sum(outcome is not OutcomeClass.INFRA for outcome in outcomes)
    assert result.corrupted == sum(outcome in load_classes().corrupt for outcome in outcomes)
    parsed = parse_peoples_line(result.line())
    assert (parsed.corrupted, parsed.sessions) == (result.corrupted, result.counted)
    infra = result.count_of[OutcomeClass.INFRA]
    assert parsed.parts.get("infra", 0) == infra
    assert sum(parsed.parts.values()) == result.sessions


@given(st.integers(0, 10**6), st.integers(1, 10**6))
@example(1, 3000)
@example(2999, 3000)
@example(1, 10**6)
def test_the_line_never_calls_a_few_none_or_most_all(corrupted, more):
    sessions = corrupted + more
    counts = {OutcomeClass.LEAK: corrupted, OutcomeClass.DONE: more}
    line = peoples_line(corrupted, sessions, counts)
    share = float(line.partition(" = ")[2].partition("%")[0])
    assert (share == 0) == (corrupted == 0)
    assert share < 100
    assert share == pytest.approx(100 * corrupted / sessions, abs=0.051, rel=0.06)
    parsed = parse_peoples_line(line)
    assert (parsed.corrupted, parsed.parts["leak"]) == (corrupted, corrupted)


def test_the_last_line_of_an_output_counts():
    text = "CORRUPTION sessions: 1/2\nnoise\nCORRUPTION sessions: 3/40 = 7.5%  (leak=3 no_tool=0)\n"
    parsed = parse_peoples_line(text)
    assert (parsed.corrupted, parsed.sessions, parsed.parts) == (3, 40, {"leak": 3, "no_tool": 0})
    assert parse_peoples_line("no line") is None


def test_a_session_that_was_never_recorded_counts_as_infra_and_makes_the_trial_invalid():
    result = summary([OutcomeClass.DONE] * 3, sessions=5)
    assert result.count_of[OutcomeClass.INFRA] == 2
    assert "2 of 5 sessions were never recorded" in result.invalid_because


def test_a_trial_of_nothing_but_infra_is_invalid():
    result = summary([OutcomeClass.INFRA] * 3)
    assert "all were infra" in " ".join(result.invalid_because)


@pytest.mark.parametrize(
    ("client", "exposure", "said"),
    [
        (replace(WELL, loop_lag_p99_ms=101.0), Exposure(peak_concurrency=40), "overloaded"),
        (replace(WELL, stalled_s=1.1, wall_s=5), Exposure(peak_concurrency=40), "1.1 s of 5.0 s"),
        (replace(WELL, stalled_s=6.1, wall_s=60), Exposure(peak_concurrency=40), "6.1 s of 60.0 s"),
        (WELL, Exposure(peak_concurrency=37), "concurrency 37 never reached 95% of 40"),
    ],
)
def test_a_trial_that_the_client_could_not_drive_is_void(client, exposure, said):
    (fault,) = client_faults(client, exposure, 40)
    assert said in fault


def test_the_bounds_of_a_sound_client_are_inclusive():
    for at_bound in (
        replace(WELL, loop_lag_p99_ms=100.0),
        replace(WELL, stalled_s=1.0, wall_s=1.5),
        replace(WELL, stalled_s=6.0, wall_s=60.0),
    ):
        assert client_faults(at_bound, Exposure(peak_concurrency=38), 40) == ()


def test_concurrency_is_what_was_in_flight():
    load = exposure_of([[stats(0, 4), stats(5, 6)], [stats(1, 3)], [stats(4, 5)]])
    assert load.concurrency_s == 8
    assert load.peak_concurrency == 2
    assert load.wall_s == 6
    assert load.mean_concurrency == pytest.approx(8 / 6)
    assert load.start_spread_s == 4


def test_tokens_come_from_usage_or_else_from_pieces():
    load = exposure_of([[stats(0, 1)], [stats(0, 1, prompt_tokens=None, completion_tokens=None)]])
    assert (load.prompt_tokens, load.completion_tokens) == (100, 20)
    assert not load.is_usage_reported
    assert load.longest_context_tokens == 110


def test_nothing_sent_is_no_load():
    assert exposure_of([]) == Exposure()
    assert exposure_of([[]]) == Exposure()
    assert percentile([], 0.5) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values, share):
    assert percentile(sorted(values), share) in values


def test_latency_counts_from_when_a_request_was_due():
    exchange = Exchange(1, "", 2.0, 2.5, 1.0, status=200, first_token_at_s=0.25)
    found = round_stats(exchange, Reply(usage=Usage(7, 8, 9), choices=4))
    assert found == RoundStats(2.0, 2.5, 3.5, 0.75, 7, 8, 9, 4, is_answered=True)
    failed = round_stats(replace(exchange, ended=Ended.CUT, first_token_at_s=None), Reply())
    assert (failed.ttft_s, failed.is_answered) == (None, False)


def test_a_result_survives_json():
    result = summary([OutcomeClass.LEAK, OutcomeClass.DONE])
    leak = SessionOutcome(0, OutcomeClass.LEAK, ("leak_content",), 1, (Finding("leak_content"),))
    result = replace(result, outcomes=(leak, *result.outcomes[1:]))
    assert result_from_json(json.loads(json.dumps(result_to_json(result)))) == result


def test_the_load_of_clean_sessions_is_comparable_between_arms():
    """A corrupt session that ends early, or talks without end, does not count into it."""
    result = summary(
        [OutcomeClass.DONE, OutcomeClass.LEAK],
        rounds=[[stats(0, 1), stats(1, 2)], [stats(0, 60, completion_tokens=1800)]],
    )

    assert (result.clean.rounds, result.clean.completion_tokens) == (2, 20)
    assert result.exposure.completion_tokens == 1820


def test_a_few_endless_replies_do_not_thin_the_concurrency_of_a_busy_trial():
    sessions = [[stats(0, 10)] for _ in range(9)] + [[stats(0, 1000)]]

    exposure = exposure_of(sessions)

    assert exposure.busy_concurrency == 10
    assert exposure.mean_concurrency < 2
