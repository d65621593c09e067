"""The controller raises the very error that the host met, with its facts."""

from __future__ import annotations

import inspect

import pytest

from fleetctl import errors
from fleetctl.errors import ExitCode, FleetError
from fleetctl.transaction import failure
from fleetctl.transaction.failure import decode_failure, encode_failure, with_facts
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.outcome import Conflict

KINDS = {
    kind.__name__: kind
    for module in (errors, failure)
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, FleetError) and kind is not errors.EditRefused
}


@pytest.mark.parametrize("name", KINDS)
def test_every_error_arrives_as_what_it_was(name):
    kind = KINDS[name]
    sent = kind("what", why="why", next_step="next")

    arrived = decode_failure(encode_failure(sent, {}), {})

    assert type(arrived) is kind
    assert (arrived.what, arrived.why, arrived.next_step) == ("what", "why", "next")
    assert arrived.exit_code == sent.exit_code


def test_facts_travel_with_the_error():
    lease = Lease("l", "run", "ann@desk", "hunt", "x.service", 1.0, 2.0)
    conflicts = (Conflict("/a", "-1\n+2", "/objects/x", 0o644),)
    sent = with_facts(
        failure.FilesInConflict("w", why="y", next_step="n"), conflicts=conflicts, lease=lease
    )

    arrived = decode_failure(encode_failure(sent, {}), {})

    assert arrived.conflicts == conflicts
    assert arrived.lease == lease


def test_a_class_that_only_the_agent_knows_arrives_as_its_nearest_known_one():
    class Busy(errors.LeaseHeld):
        pass

    arrived = decode_failure(encode_failure(Busy("w", why="y", next_step="n"), {}), {})

    assert type(arrived) is errors.LeaseHeld


def test_an_exit_code_set_for_this_error_arrives():
    sent = errors.ApplyFailed("w", why="y", next_step="n", exit_code=ExitCode.REFUSED)

    assert decode_failure(encode_failure(sent, {}), {}).exit_code is ExitCode.REFUSED


def test_an_unknown_kind_is_still_an_error_with_its_words():
    data = {**encode_failure(errors.NotReady("w", why="y", next_step="n"), {}), "kind": "Newer"}

    arrived = decode_failure(data, {})

    assert type(arrived) is FleetError
    assert arrived.what == "w"


def test_a_name_that_is_no_error_is_never_called():
    data = {**encode_failure(errors.NotReady("w", why="y", next_step="n"), {}), "kind": "wire"}

    assert type(decode_failure(data, {})) is FleetError
