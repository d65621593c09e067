"""`fleetctl status` in words: who works on a host, what lies there, and since when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.cli.hosts import _as_json, _known_lines, _restored_lines, _status_lines, only_there
from fleetctl.store.left_open import LeftOpen
from fleetctl.transaction.outcome import Restored
from fleetctl.transaction.snapshot import HeldTransaction, Status
from fleetctl.workflow.hosts import Answer, Known


def kept(since_s: float) -> HeldTransaction:
    steps = ("replace /x",)
    return HeldTransaction(
        "t", "r1", "ann@desk", "fix", "u.service", "committed", since_s, steps, ()
    )


def test_a_host_without_anything_is_free():
    assert [*_status_lines(Status((), ()))] == ["free; nothing is held"]


@pytest.mark.parametrize(
    ("since_s", "told"), [(0.0, ""), (3600.0, ", since 1970-01-01 01:00:00 UTC")]
)
def test_a_kept_change_is_told_with_its_age_and_that_nobody_works_there(since_s, told):
    assert [*_status_lines(Status((), (kept(since_s),)))] == [
        "free; still held here:",
        f"committed change of run r1 by ann@desk (fix){told}",
        "  replace /x",
    ]


@pytest.mark.parametrize(
    ("transactions", "files", "told"),
    [
        ((), (), "nothing was held"),
        (("t",), (), "nothing was left to restore"),
        (("t",), ("/x",), "restored /x"),
    ],
)
def test_a_rollback_is_never_silent(transactions, files, told):
    assert [*_restored_lines(Restored(transactions, files, (), (), (), ()))] == [told]


def test_a_change_in_conflict_reads_as_one():
    held = replace(kept(0.0), state="conflict", conflicts=("/x",))

    assert [*_status_lines(Status((), (held,)))][1::2] == [
        "change in conflict of run r1 by ann@desk (fix)",
        "  in conflict: /x",
    ]


@pytest.mark.parametrize(
    ("told", "there"),
    [
        (
            "`fleetctl rollback --force` overwrites",
            "`fleetctl rollback --force --host h` overwrites",
        ),
        (
            "`fleetctl rollback` or `fleetctl status`",
            "`fleetctl rollback --host h` or `fleetctl status --host h`",
        ),
        ("`fleetctl rollback R --host g`", "`fleetctl rollback R --host g`"),
        ("`fleetctl lab up`, `nc -vz h 22`", "`fleetctl lab up`, `nc -vz h 22`"),
    ],
)
def test_the_next_step_of_one_host_s_trouble_leaves_the_others_alone(told, there):
    assert only_there(told, "h") == there


@pytest.mark.parametrize(("state", "command"), [("kept", "results show"), ("unfinished", "resume")])
def test_what_only_this_machine_remembers_is_told_and_not_called_a_change(state, command):
    runs = [LeftOpen(f"r{n}", state, 3600.0, "") for n in range(5)]

    head, *notes = _known_lines(Known(Status((), ()), tuple(runs)))

    assert head == "free; nothing is held"
    assert "(1970-01-01 01:00:00 UTC), and the host knows nothing of it: it " in notes[0]
    assert f"`fleetctl {command} r0`" in notes[0]
    assert (len(notes), notes[-1]) == (4, "  note: and 2 earlier runs; `--json` has them all")


def test_json_of_a_status_has_it_beside_what_the_host_says():
    found = Known(Status((), ()), (LeftOpen("r", "kept", 1.0, "m"),))

    answer = _as_json(Answer("h", found))["answer"]

    assert (answer["leases"], answer["transactions"]) == ((), ())
    assert [left["run_id"] for left in answer["forgotten"]] == ["r"]
