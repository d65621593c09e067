"""What a plan says of a unit that stops badly."""

from __future__ import annotations

import pytest

from fleetctl.workflow.prepare import stop_warnings


@pytest.mark.parametrize(
    ("kill_mode", "main", "serving", "says"),
    [
        ("control-group", "7", {7, 8}, ["not drained"]),
        ("process", "7", {7}, ["leaves all but the main process"]),
        ("mixed", "7", {7}, []),
        ("mixed", "6", {7}, ["without `exec`", "only the script hears"]),
        ("", "6", {7}, ["without `exec`"]),
        ("", "0", set(), []),
    ],
)
def test_a_unit_that_stops_badly_is_named(kill_mode, main, serving, says):
    found = stop_warnings({"KillMode": kill_mode, "MainPID": main}, serving)

    assert len(found) == len(says)
    assert all(said in line for said, line in zip(says, found, strict=True))
