"""What a run's log says of a host in the end."""

from __future__ import annotations

import pytest

from fleetctl.store.left_open import KEPT, UNFINISHED, left_open, note_rollback
from fleetctl.store.run_folder import RunFolder


def run(root, *events, name="r"):
    folder = RunFolder.create(root, name, {"kind": "experiment"})
    for at_s, (kind, facts) in enumerate(events):
        folder.record(float(at_s), kind, **facts)
    return folder


HELD = ("held", {"host": "a"})
DEPLOYING = ("deploying", {"site": "a+b"})
RESTORED = ("restored", {"host": "a"})
KEPT_EVENT = ("kept", {"host": "a"})


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], None),
        ([HELD], None),
        ([HELD, DEPLOYING], UNFINISHED),
        ([HELD, DEPLOYING, RESTORED], None),
        ([HELD, DEPLOYING, RESTORED, HELD, DEPLOYING], UNFINISHED),
        ([HELD, DEPLOYING, ("restored", {"host": "b"})], UNFINISHED),
        ([HELD, DEPLOYING, KEPT_EVENT], KEPT),
    ],
)
def test_a_run_leaves_a_host_open_until_its_end_is_recorded(tmp_path, events, state):
    run(tmp_path, *events)

    assert [left.state for left in left_open(tmp_path, "a")] == ([state] if state else [])


def test_a_rollback_closes_it_and_runs_of_others_are_passed_over(tmp_path):
    run(tmp_path, DEPLOYING, KEPT_EVENT)
    note_rollback(tmp_path, "r", "a", 9.0)
    note_rollback(tmp_path, "of-another-machine", "a", 9.0)

    assert left_open(tmp_path, "a") == ()
    assert [left.state for left in left_open(tmp_path, "b")] == [UNFINISHED]
    assert not (tmp_path / "of-another-machine").exists()


def test_the_newest_comes_first_and_damage_or_no_folder_says_nothing(tmp_path):
    for name in ("1", "2"):
        run(tmp_path, DEPLOYING, name=name)
    (tmp_path / "2" / "events.jsonl").write_bytes(b"\xff[]\n7\n" + b'{"at_s": 1, "kind": "x"}')
    run(tmp_path, DEPLOYING, name="3").write("hosts/a/facts.json", b"damaged")
    run(tmp_path, DEPLOYING, name="4")
    (tmp_path / "file").write_text("")

    assert [left.run_id for left in left_open(tmp_path, "a")] == ["4", "1"]
    assert left_open(tmp_path / "nowhere", "a") == left_open(tmp_path / "file", "a") == ()
