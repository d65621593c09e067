"""One arm in the place of another: the first goes back before the second comes."""

from __future__ import annotations

import hashlib

import pytest

from fleetctl.errors import FleetError
from fleetctl.transaction.failure import Drifted, FilesInConflict
from fleetctl.transaction.step import WriteFile

OLD_MODULE, FIRST, SECOND = b"VALUE = 'old'\n", b"VALUE = 'first'\n", b"VALUE = 'second'\n"
SCRIPT, NEW_SCRIPT = b"#!/bin/bash\nexport FLAG=0\n", b"#!/bin/bash\nexport FLAG=1\n"
CONTENTS = {hashlib.sha256(c).hexdigest(): c for c in (FIRST, SECOND, NEW_SCRIPT)}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write(path, content, expect):
    return WriteFile(str(path), sha256(content), None, sha256(expect))


@pytest.fixture
def arms(ground):
    """Put a first arm on a host; returns the lease and the host as it was."""
    before = ground.look()
    lease = ground.lease()
    first = (write(ground.module, FIRST, OLD_MODULE), write(ground.script, NEW_SCRIPT, SCRIPT))
    ground.agent.apply(lease, "first", first, CONTENTS)
    return lease, before


def replace(ground, lease, steps, *, replaces="first"):
    return ground.agent.apply(lease, "second", steps, CONTENTS, replaces=replaces)


def test_the_second_arm_is_planned_from_the_host_as_found(ground, arms):
    lease, before = arms

    replace(ground, lease, (write(ground.module, SECOND, OLD_MODULE),))

    assert ground.module.read_bytes() == SECOND
    assert ground.script.read_bytes() == SCRIPT
    assert [t.id for t in ground.agent.status().transactions] == ["second"]
    ground.agent.release(lease.id)
    assert ground.look() == before


def test_new_bytecode_can_not_be_taken_for_the_first_arm_s(ground, arms):
    lease, _ = arms
    assert ground.import_value() == "first"

    replace(ground, lease, (write(ground.module, SECOND, OLD_MODULE),))

    assert ground.import_value() == "second"


def test_an_empty_second_arm_is_the_host_as_found(ground, arms):
    lease, before = arms

    replace(ground, lease, ())

    assert ground.look() == before


def test_a_second_arm_that_does_not_fit_leaves_the_host_as_found(ground, arms):
    lease, before = arms

    with pytest.raises(Drifted):
        replace(ground, lease, (write(ground.module, SECOND, b"something else"),))

    assert ground.look() == before
    assert ground.agent.status().transactions == ()


def test_a_stranger_s_change_of_the_first_arm_s_file_stops_the_second(ground, arms):
    lease, _ = arms
    ground.script.write_bytes(b"a note at 3 am\n")

    with pytest.raises(FilesInConflict):
        replace(ground, lease, (write(ground.module, SECOND, OLD_MODULE),))

    assert ground.script.read_bytes() == b"a note at 3 am\n"
    assert ground.module.read_bytes() == OLD_MODULE
    with pytest.raises(FilesInConflict):
        ground.agent.release(lease.id)
    ground.agent.settle("first")


def test_only_a_transaction_of_the_same_lease_can_be_replaced(ground, arms):
    lease, _ = arms

    with pytest.raises(FleetError, match="not one of this lease"):
        replace(ground, lease, (), replaces="somebody's")
    assert ground.module.read_bytes() == FIRST
