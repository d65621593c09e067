"""A plan as people read it: exact, yet no line is longer than a page."""

from __future__ import annotations

import pytest

from fleetctl.plan.desired import Desired, FileGoal
from fleetctl.plan.diff import render_plan, whole_plan
from fleetctl.plan.planner import Plan, plan_host, sha256
from fleetctl.transaction.snapshot import PathState


def plan_of(before: bytes, after: bytes) -> Plan:
    state = PathState("/s.sh", "/s.sh", "file", sha256=sha256(before), content=before)
    lent = ("/c/fleetctl-1", "/c/fleetctl-2", "/c/fleetctl-3")
    desired = Desired((FileGoal("/s.sh", after, "flag"),), "x.service", lent=lent)
    return plan_host("h", desired, {"/s.sh": state}, soak_s=1.0)


def test_a_value_of_many_pages_is_shown_by_its_length_and_digest_and_is_whole_elsewhere():
    line = "export A=" + "x" * 100_000
    plan = plan_of(b"export A=1\n", f"{line}\n".encode())

    shown = "\n".join(render_plan(plan))

    assert len(shown) < 1000
    assert f"({len(line)} characters, sha256 {sha256(line.encode())[:12]})" in shown
    assert f"+{line}" in list(whole_plan(plan))


def test_lines_of_an_ordinary_length_are_shown_as_they_are():
    plan = plan_of(b"export A=1\n", b"export A='" + b"y" * 300 + b"'\n")

    assert list(render_plan(plan)) == list(whole_plan(plan))


@pytest.mark.parametrize(
    ("uses", "told"),
    [
        (None, ["  lend 3 directories to the service for the whole run"]),
        (
            ("/c/fleetctl-1", "/c/fleetctl-3"),
            ["  lend 2 directories to the service for the whole run"],
        ),
        (("/c/fleetctl-2",), ["  lend 1 directory to the service for the whole run"]),
        ((), []),
    ],
)
def test_lent_directories_are_one_line_and_only_those_that_the_arm_uses(uses, told):
    lines = list(render_plan(plan_of(b"export A=1\n", b"export A=2\n"), uses=uses))

    assert [line for line in lines if "lend" in line] == told
    steps = 2 + (3 if uses is None else len(uses))  # the file, the directories, the restart
    assert lines[0] == f"files that change: 1; steps: {steps}"
