"""The engine underneath: faults that were reported of it do not come back, and ours stay ours."""

from __future__ import annotations

import pytest

from benchmarks.scale.engine import CHECKS, bench
from fleetctl.queue.address import parse_address


@pytest.fixture(scope="module")
def engine_alone(server):
    with bench(parse_address(server.new_database())) as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_fault_that_was_reported_of_the_engine_is_not_there(engine_alone, check):
    found = check(engine_alone)

    assert found.holds, f"{found.report}: {found.seen}"
