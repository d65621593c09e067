"""Golden sessions get their class and flags, also when every chunk boundary lies elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.classes import Classes, OutcomeClass, classifier_version, load_classes
from fleetctl.trial.conversation import read_conversations
from fleetctl.trial.events import (
    Ended,
    Exchange,
    Expectation,
    Plant,
    SessionRecord,
    SseEvent,
    Truth,
)
from fleetctl.trial.outcome import classify
from fleetctl.trial.sse import SseParser

GOLDEN = Path(__file__).parent.parent / "golden" / "sessions"
FILES = sorted(GOLDEN.glob("*.json"))


def load(file: Path) -> tuple[dict, SessionRecord]:
    text = file.read_text("utf-8")
    (record,) = read_conversations(text, file.name)
    return json.loads(text), record


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_session_has_its_class_and_flags(file):
    golden, record = load(file)
    outcome = classify(record)
    assert outcome.outcome == golden["outcome"]
    assert set(golden["flags"]) <= set(outcome.flags)


@pytest.mark.parametrize("given_up", ["abort", "error"])
@pytest.mark.parametrize("text", ["", "I was about to look at", "{{{ [ lookup ]]"])
@pytest.mark.parametrize("wanted", [Expectation(tool="t"), Expectation(contains="x")])
def test_a_reply_that_the_server_gave_up_is_an_error_and_neither_garbage_nor_no_tool(
    given_up, text, wanted
):
    choice = {"index": 0, "message": {"content": text}, "finish_reason": given_up}
    exchange = Exchange(1, "{}", status=200, body=json.dumps({"choices": [choice]}))
    outcome = classify(SessionRecord(0, Truth(expects=(wanted,)), (exchange,)))
    assert (outcome.outcome, outcome.is_corrupt) == (OutcomeClass.ERROR, False)
    assert "given_up_by_server" in outcome.flags


def test_a_request_that_nests_too_deep_to_be_read_is_judged_as_unknown():
    body = json.dumps({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]})
    deep = Exchange(1, "[" * 100_000, status=200, body=body)
    assert classify(SessionRecord(0, Truth(), (deep,))).outcome is OutcomeClass.DONE


def test_every_class_is_covered_by_golden_sessions():
    seen = Counter(json.loads(file.read_text("utf-8"))["outcome"] for file in FILES)
    assert set(seen) == set(OutcomeClass)
    assert min(seen.values()) >= 3


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_stream_cut_at_every_byte_is_the_same_stream(file):
    golden, record = load(file)
    stream = golden.get("sse", "").encode()
    whole = [event.data.encode("utf-8", "surrogateescape") for event in record.exchanges[0].events]
    for cut in range(len(stream) + 1):
        parser = SseParser()
        events = [*parser.feed(stream[:cut]), *parser.feed(stream[cut:])]
        late, tail = parser.finish()
        assert [*events, *late] == whole
        assert tail.decode() == record.exchanges[0].tail


def recut(record: SessionRecord, at: int) -> SessionRecord:
    """The same reply with its text cut at another character: one chunk before, one after."""
    exchange = record.exchanges[0]
    events, passed = [], 0
    for event in exchange.events:
        try:
            chunk = json.loads(event.data)
            delta = chunk["choices"][0]["delta"]
            key = next(k for k in ("content", "reasoning", "reasoning_content") if delta.get(k))
        except (ValueError, KeyError, IndexError, StopIteration):
            events.append(event)
            continue
        text = delta[key]
        cut = min(max(0, at - passed), len(text))
        passed += len(text)
        for piece in (text[:cut], text[cut:]):
            chunk["choices"][0]["delta"] = {key: piece}
            events.append(SseEvent(event.at_s, json.dumps(chunk)))
    return replace(record, exchanges=(replace(exchange, events=tuple(events)),))


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.stem.startswith(("leak", "done", "cross", "arg"))],
    ids=lambda file: file.stem,
)  # fmt: skip
def test_a_reply_cut_at_every_character_has_the_same_outcome(file):
    _, record = load(file)
    whole = classify(record)
    for at in range(sum(len(event.data) for event in record.exchanges[0].events) // 60):
        assert classify(recut(record, at)) == whole


def test_the_first_reply_that_is_not_clean_decides():
    leak = Exchange(
        round=1,
        request="",
        status=200,
        body=json.dumps({"choices": [{"message": {"content": "<tool_call>"}}]}),
    )
    refused = Exchange(round=2, request="", status=None, ended=Ended.CONNECT_FAILED)
    outcome = classify(SessionRecord(0, Truth(), (leak, refused)))
    assert (outcome.outcome, outcome.round) == (OutcomeClass.LEAK, 1)
    assert "connect_failed" in outcome.flags


@pytest.mark.parametrize(
    ("status", "alone", "after_an_answer"),
    [
        (429, OutcomeClass.INFRA, OutcomeClass.INFRA),
        (503, OutcomeClass.INFRA, OutcomeClass.INFRA),
        (500, OutcomeClass.INFRA, OutcomeClass.ERROR),
        (502, OutcomeClass.INFRA, OutcomeClass.ERROR),
        (400, OutcomeClass.ERROR, OutcomeClass.ERROR),
        (302, OutcomeClass.ERROR, OutcomeClass.ERROR),
    ],
)
def test_a_refusal_is_judged_by_whether_the_server_had_answered_before(
    status, alone, after_an_answer
):
    answer = json.dumps({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]})
    good = Exchange(1, "", status=200, body=answer)
    refused = Exchange(1, "", status=status, body="no")
    later = replace(refused, round=2)
    assert classify(SessionRecord(0, Truth(), (refused,))).outcome is alone
    assert classify(SessionRecord(0, Truth(), (good, later))).outcome is after_an_answer


def test_a_session_that_ended_too_early_with_nothing_wrong_is_infra():
    calls = [{"function": {"name": "f", "arguments": "{}"}}]
    body = json.dumps({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "stop"}]})
    exchange = Exchange(round=1, request="", status=200, body=body)
    truth = Truth(expects=(Expectation(tool="f"), Expectation(contains="x")))
    assert classify(SessionRecord(0, truth, (exchange,))).outcome is OutcomeClass.INFRA
    assert classify(SessionRecord(0, truth, ())).outcome is OutcomeClass.INFRA


def test_classes_come_in_the_order_of_judgement_and_share_no_flag():
    classes = load_classes()
    assert [outcome for outcome, _ in classes.flags] == list(OutcomeClass)
    flags = [flag for _, own in classes.flags for flag in own]
    assert len(flags) == len(set(flags))


def test_infra_is_neither_corrupt_nor_counted_and_no_tool_is_not_corrupt_by_itself():
    classes = load_classes()
    assert classes.uncounted == {OutcomeClass.INFRA}
    assert classes.corrupt == {
        OutcomeClass.LEAK,
        OutcomeClass.BAD_ARGS,
        OutcomeClass.WRONG_TOOL,
        OutcomeClass.ARG_MISMATCH,
        OutcomeClass.CROSS_TALK,
        OutcomeClass.GARBAGE,
    }


def test_another_set_of_classes_judges_differently():
    _, record = load(GOLDEN / "no_tool_answer.json")
    classes = load_classes()
    lenient = Classes(
        version=2,
        flags=tuple((o, own) for o, own in classes.flags if o is not OutcomeClass.NO_TOOL),
        corrupt=classes.corrupt,
        uncounted=classes.uncounted,
        garbage=classes.garbage,
    )
    assert classify(record, lenient).outcome is OutcomeClass.DONE


def test_the_version_names_code_markup_and_classes():
    assert classifier_version().count(".") == 2


HOSTILE = [
    " ", "\n", "<", "{", "`", "|", "[ ", "< ", "| ", "a", "~~~", "```\n", '{"arguments":', '"name"',
    '{"name": "lookup_order", "arguments": {', "<|DSML", "lookup_order(", "ZK-4417-Q ", "\\u003c",
    "\u2581", "AA-0000-A BB-1111-B ", "to=functions.", "<invoke ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_runaway_text_takes_more_than_linear_time(piece):
    # at this size a quadratic step would not end within any patience
    text = piece * (300_000 // len(piece))
    request = json.dumps({"messages": [], "tools": [{"function": {"name": "lookup_order"}}]})
    call = {"function": {"name": "lookup_order", "arguments": text}}
    for message in ({"content": text, "reasoning": text}, {"tool_calls": [call]}):
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
        exchange = Exchange(1, request, status=200, body=body)
        truth = Truth(values=("ZK-4417-Q",), plant=Plant(1, 0, 40, 3))
        outcome = classify(SessionRecord(0, truth, (exchange,)))
        assert len(outcome.findings) < 100


jsonish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "delta", "message", "content", "tool_calls", "function", "name", "index",
             "arguments", "usage", "error", "code", "finish_reason", "reasoning", "id"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(jsonish, jsonish, st.sampled_from([200, 429, 500, None]), st.sampled_from(Ended))
def test_no_response_can_break_the_classifier(value, request, status, ended):
    data = json.dumps(value)
    for exchange in (
        Exchange(1, json.dumps(request), status=status, ended=ended, body=data),
        Exchange(1, json.dumps(request), status=status, ended=ended, events=(SseEvent(0, data),)),
    ):
        outcome = classify(SessionRecord(0, Truth(values=("a",), foreign=("b",)), (exchange,)))
        assert outcome.outcome in OutcomeClass
