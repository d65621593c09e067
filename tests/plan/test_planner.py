"""Plans: the steps, their order, and what they expect to find."""

import pytest

from fleetctl.errors import DriftError
from fleetctl.plan.desired import Desired, FileGoal, with_as_found
from fleetctl.plan.diff import render_plan
from fleetctl.plan.planner import parents_of, plan_host, sha256
from fleetctl.transaction.image import ABSENT
from fleetctl.transaction.snapshot import PathState
from fleetctl.transaction.step import MakeDirectory, ReloadUnits, RemoveFile, RestartUnit, WriteFile

UNIT = "s.service"


def file(path: str, content: bytes) -> PathState:
    return PathState(path, path, "file", sha256=sha256(content), content=content)


def absent(path: str) -> PathState:
    return PathState(path, path, "absent")


def plan(goals, *states, **options):
    observed = {state.path: state for state in states}
    return plan_host("h", Desired(tuple(goals), UNIT), observed, soak_s=1.0, **options)


def test_what_already_is_as_desired_needs_no_step():
    assert plan([FileGoal("/a", b"x", "w")], file("/a", b"x")).steps == ()


def test_a_fresh_boot_may_be_asked_for_without_a_change():
    made = plan([FileGoal("/a", b"x", "w")], file("/a", b"x"), restart_always=True)

    assert [type(step) for step in made.steps] == [RestartUnit]
    assert made.is_empty


def test_a_replaced_file_expects_the_bytes_that_were_seen_and_the_restart_comes_last():
    made = plan([FileGoal("/a", b"new", "w")], file("/a", b"old"))

    write, restart = made.steps
    assert write == WriteFile("/a", sha256(b"new"), None, sha256(b"old"))
    assert isinstance(restart, RestartUnit)
    assert made.blobs == {sha256(b"new"): b"new"}


def test_a_new_file_brings_its_missing_directories_outermost_first():
    path = "/etc/systemd/system/s.service.d/90-fleetctl.conf"
    made = plan(
        [FileGoal(path, b"[Service]\n", "w")],
        absent(path),
        absent("/etc/systemd/system/s.service.d"),
        PathState("/etc/systemd/system", "/etc/systemd/system", "directory"),
    )

    assert [type(step) for step in made.steps] == [
        MakeDirectory,
        WriteFile,
        ReloadUnits,
        RestartUnit,
    ]
    assert made.steps[1].expect is ABSENT or made.steps[1].expect == ABSENT


def test_a_file_that_should_not_be_there_is_removed():
    made = plan([FileGoal("/a", None, "w")], file("/a", b"old"))

    assert made.steps[0] == RemoveFile("/a", sha256(b"old"))


def test_a_directory_in_the_place_of_a_file_is_drift():
    with pytest.raises(DriftError, match="not a file"):
        plan([FileGoal("/a", b"x", "w")], PathState("/a", "/a", "directory"))


def test_an_arm_never_keeps_leftovers_of_another_arm():
    goals = with_as_found([FileGoal("/a", b"new", "w")], {"/a": b"old", "/b": b"found", "/c": None})

    assert {goal.path: goal.content for goal in goals} == {"/a": b"new", "/b": b"found", "/c": None}


def test_the_diff_is_exact():
    made = plan(
        [FileGoal("/a", b"export A=2\nexec x", "flag A")], file("/a", b"export A=1\nexec x")
    )
    text = "\n".join(render_plan(made))

    assert "# flag A" in text
    assert "-export A=1\n+export A=2" in text
    assert "\\ No newline at end of file" in text


def test_binary_files_are_said_to_be_binary():
    made = plan([FileGoal("/a", b"\xff\x00", "w")], absent("/a"))

    assert "binary: 0 bytes -> 2 bytes" in "\n".join(render_plan(made))


def test_parents_are_listed_outermost_first():
    assert parents_of("/a/b/c") == ["/a", "/a/b"]
