"""What a plan says of a unit that stops badly, or does not stay up."""

from __future__ import annotations

import pytest

from fleetctl.workflow.prepare import unit_warnings


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
    found = unit_warnings({"KillMode": kill_mode, "MainPID": main}, serving)

    assert len(found) == len(says)
    assert all(said in line for said, line in zip(says, found, strict=True))


@pytest.mark.parametrize("name", ["RequiredBy", "BoundBy", "ConsistsOf", "PropagatesStopTo"])
def test_units_that_a_stop_takes_along_are_named(name):
    (line,) = unit_warnings({name: "router.service exporter.service", "WantedBy": "x"}, set())

    assert "takes along router.service, exporter.service;" in line


@pytest.mark.parametrize(("restarts", "told"), [("0", 0), ("", 0), ("1", 1), ("250", 1)])
def test_a_unit_that_does_not_stay_up_by_itself_is_named(restarts, told):
    found = unit_warnings({"NRestarts": restarts}, set())

    assert len([line for line in found if f"NRestarts={restarts}" in line]) == len(found) == told
