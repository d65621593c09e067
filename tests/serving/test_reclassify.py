"""Stored trials judged again: what is damaged is named, and everything else is judged."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.serving.reclassify import reclassify, stored_sessions
from fleetctl.serving.transcripts import TranscriptFolder
from fleetctl.trial.classes import classifier_version
from fleetctl.trial.events import Exchange, SessionRecord, Truth, to_json
from fleetctl.trial.outcome import classify

ANSWER = {"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
BODY = json.dumps({"choices": [ANSWER]})


def session_line(session: int) -> dict:
    record = SessionRecord(
        session, Truth(), (Exchange(round=1, request="{}", status=200, body=BODY),)
    )
    outcome = asdict(classify(record))
    return {**to_json(record), "classifier": classifier_version(), "outcome": outcome}


def written(folder: Path, *more: bytes, sessions: int = 3) -> Path:
    sink = TranscriptFolder(folder).open(0)
    sink.write({"kind": "trial", "workload": {"sessions": 3}, "labels": {"arm": "control"}})
    for session in range(sessions):
        sink.write(session_line(session))
    sink.close()
    file = folder / "transcripts.0.jsonl.gz"
    file.write_bytes(file.read_bytes() + b"".join(more))
    return file


def member(value: object) -> bytes:
    return gzip.compress((value if isinstance(value, str) else json.dumps(value)).encode(), mtime=0)


def flipped(data: bytes) -> bytes:
    return data[:30] + bytes([data[30] ^ 8]) + data[31:]


DAMAGE = {
    "flipped bit": flipped(member(session_line(7))),
    "no gzip": b"{}\n" * 40,
    "no JSON": member('{"kind": "session", "sess'),
    "no object": member([1, 2]),
    "no kind": member({"session": 1}),
    "no record": member({"kind": "session", "session": 7}),
    "a session of words": member({**session_line(7), "session": "seven"}),
    "an exchange of a number": member({**session_line(7), "exchanges": [3]}),
    "an unknown end": member(
        {**session_line(7), "exchanges": [{**session_line(7)["exchanges"][0], "ended": "maybe"}]}
    ),
    "no outcome": member({**session_line(7), "outcome": "done"}),
    "deep nesting": member('{"kind": ' + "[" * 100_000),
    "a huge line": gzip.compress(b" " * (2**27 + 1), 1, mtime=0),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_named_and_everything_else_is_judged(tmp_path, kind):
    written(tmp_path / "a", DAMAGE[kind], member(session_line(3)))
    written(tmp_path / "b")

    bad, good = reclassify(tmp_path)

    assert good.is_reproduced
    assert [str(outcome.outcome) for outcome in bad.now] == ["done"] * 3
    assert (bad.is_reproduced, bad.must_agree) == (False, True)
    (told,) = bad.damage
    assert "damaged" in told
    assert "transcripts.0.jsonl.gz" in told


def test_a_torn_end_loses_one_session_which_is_counted_as_infra(tmp_path):
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:-5])

    (found,) = reclassify(tmp_path)

    assert found.damage == ()
    assert (len(found.now), found.counts(found.now)["infra"]) == (2, 1)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08", member({"kind": "trial"})])
def test_a_file_without_a_session_is_refused_as_a_conversation(tmp_path, content):
    file = tmp_path / "transcripts.0.jsonl.gz"
    file.write_bytes(content)

    with pytest.raises(InputError, match="holds no session"):
        list(stored_sessions(file))
    (found,) = reclassify(tmp_path)
    assert found.now == ()


def test_a_head_of_any_shape_is_no_crash(tmp_path):
    written(tmp_path, member({"kind": "trial", "workload": [], "labels": 3}))

    (found,) = reclassify(tmp_path)

    assert (found.sessions, found.labels) == (3, {})
