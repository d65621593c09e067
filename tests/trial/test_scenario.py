"""What a session says is fixed by its seed, and by nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import InputError
from fleetctl.trial.filler import WORDS, filler_text
from fleetctl.trial.planted import VALUE_PATTERN
from fleetctl.trial.scenario import (
    SCENARIO_VERSION,
    TOOLS,
    Calibration,
    build_scenario,
    first_messages,
    request_body,
    tool_result,
)
from fleetctl.trial.workload import (
    CacheMode,
    CommandWorkload,
    Limits,
    Sampling,
    ThinkKind,
    ThinkTime,
    ToolcallWorkload,
)


def scenario(session=3, *, root_seed=1, run_index=0, calibration=None, **workload):
    return build_scenario(
        ToolcallWorkload(**workload),
        root_seed=root_seed,
        run_index=run_index,
        session=session,
        calibration=calibration or Calibration(),
    )


def round_one(session=3, **workload) -> bytes:
    found = scenario(session, **workload)
    return request_body(
        ToolcallWorkload(**workload),
        model="m",
        messages=first_messages(found),
        request_seed=found.request_seeds[0],
    )


@given(st.integers(0, 50), st.integers(51, 500), st.sampled_from(CacheMode))
def test_adding_sessions_shifts_no_other(session, sessions, cache_mode):
    few = round_one(session, sessions=51, cache_mode=cache_mode)
    assert few == round_one(session, sessions=sessions, cache_mode=cache_mode)


def test_the_request_of_a_known_seed_never_changes():
    # a change here makes new trials incomparable with stored ones: raise SCENARIO_VERSION with it
    digest = hashlib.sha256(round_one(0, context_tokens=300)).hexdigest()
    assert (SCENARIO_VERSION, digest) == (
        1,
        "8a1e13e5f643cc647251e65e218a9cd5dae436a9ebf292c26df3df91e5235235",
    )


def test_runs_and_seeds_differ():
    bodies = {
        scenario(0, root_seed=seed, run_index=run).values for seed in range(3) for run in range(3)
    }
    assert len(bodies) == 9


def test_cache_modes_share_exactly_the_prefixes_they_name():
    def prefixes(mode: CacheMode) -> int:
        return len({scenario(n, cache_mode=mode, cache_groups=4).system for n in range(12)})

    assert prefixes(CacheMode.SHARED) == 1
    assert prefixes(CacheMode.MIXED) == 4
    assert prefixes(CacheMode.UNIQUE) == 12
    first_words = {scenario(n, cache_mode=CacheMode.UNIQUE).system[:22] for n in range(12)}
    assert len(first_words) == 12


def test_a_planted_value_occurs_once_in_the_first_request_and_the_filler_holds_none():
    found = scenario(context_tokens=5000)
    text = json.dumps(first_messages(found))
    assert VALUE_PATTERN.findall(text) == [found.order_ids[0]]


def test_context_is_sized_in_the_models_tokens():
    thin, thick = Calibration(tokens_per_word=1.0), Calibration(tokens_per_word=2.0)

    def words(calibration: Calibration) -> int:
        notes = scenario(context_tokens=600, calibration=calibration).system.partition("notes: ")[2]
        return len(notes.split())

    assert (words(thin), words(thick)) == (600, 300)


def test_context_spread_varies_the_length_around_the_asked_one():
    lengths = {
        len(scenario(n, context_tokens=600, context_spread=0.5).system.split()) for n in range(30)
    }
    assert len(lengths) > 20


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 9))
def test_shorter_filler_begins_longer_filler(short, more, seed):
    assert filler_text(short + more, seed).startswith(filler_text(short, seed))
    assert len(filler_text(short, seed).split()) == short


def test_filler_words_are_plain_and_distinct():
    assert len(set(WORDS)) == len(WORDS)
    assert all(re.fullmatch("[a-z]+", word) for word in WORDS)


def test_the_tool_leads_from_order_to_order_to_the_tracking_code():
    found = scenario(rounds=3)
    first, second, code = found.values
    assert json.loads(tool_result(found, first)) == {"order_id": first, "next_order_id": second}
    assert json.loads(tool_result(found, second)) == {"order_id": second, "tracking_code": code}
    assert json.loads(tool_result(found, "XX-0000-X"))["error"] == "no such order"


@pytest.mark.parametrize(("rounds", "calls"), [(1, 1), (2, 1), (3, 2), (10, 9)])
def test_all_rounds_but_the_last_need_a_call(rounds, calls):
    assert len(scenario(rounds=rounds).order_ids) == calls


def test_sampling_parameters_are_sent_only_when_set():
    assert json.loads(round_one())["temperature"] == 0.0
    bare = json.loads(round_one(sampling=Sampling(temperature=None)))
    assert not {"temperature", "top_p", "top_k", "seed"} & set(bare)
    full = json.loads(round_one(sampling=Sampling(0.7, 0.9, 40, request_seed=True)))
    assert (full["temperature"], full["top_p"], full["top_k"]) == (0.7, 0.9, 40)
    assert full["seed"] == scenario().request_seeds[0]


def test_without_streaming_no_stream_options_are_sent():
    body = json.loads(round_one(stream=False))
    assert body["stream"] is False
    assert "stream_options" not in body


def test_tools_forbid_what_they_do_not_name():
    for tool in TOOLS:
        assert tool["function"]["parameters"]["additionalProperties"] is False


@pytest.mark.parametrize("kind", ThinkKind)
def test_think_times_have_the_asked_mean_and_the_first_round_never_waits(kind):
    think = ThinkTime(kind, mean_s=2.0)
    found = [scenario(n, rounds=5, think_time=think).think_times_s for n in range(400)]
    assert {times[0] for times in found} == {0.0}
    later = [time for times in found for time in times[1:]]
    assert min(later) >= 0
    mean = sum(later) / len(later)
    assert mean == (0.0 if kind is ThinkKind.NONE else pytest.approx(2.0, rel=0.1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sessions": 0},
        {"rounds": 0},
        {"rounds": 1000},
        {"context_tokens": -1},
        {"context_spread": 1.5},
        {"max_tokens": 0},
        {"cache_groups": 0},
    ],
)
def test_an_impossible_workload_is_refused_with_the_key(wrong):
    with pytest.raises(InputError) as caught:
        ToolcallWorkload(**wrong)
    assert next(iter(wrong)) in caught.value.why


def test_impossible_limits_think_times_and_commands_are_refused():
    for build in (
        lambda: Limits(stall_s=0),
        lambda: ThinkTime(ThinkKind.CONSTANT, mean_s=-1),
        lambda: ThinkTime(ThinkKind.LOGNORMAL, mean_s=1, sigma=-1),
        lambda: CommandWorkload(argv=()),
        lambda: CommandWorkload(argv=("x",), deadline_s=0),
        lambda: replace(ToolcallWorkload(), sessions=2**30),
    ):
        with pytest.raises(InputError):
            build()
