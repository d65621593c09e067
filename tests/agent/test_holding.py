"""Leases that outlive what they were taken for: the same run goes on, all others wait."""

from __future__ import annotations

import dataclasses

import pytest

from fleetctl.agent import holding, transactions
from fleetctl.transaction.failure import LeaseTaken, NotBack


def test_a_rollback_that_failed_goes_on_as_soon_as_the_cause_is_gone(ground):
    before = ground.look()
    ground.apply()
    (record,) = ground.edges.leases.all()
    content = b"#!/bin/bash\nexport FLAG=0\n"
    (lost,) = [p for p in ground.state.glob("objects/*") if p.read_bytes() == content]
    lost.unlink()
    holding.drop(ground.edges, record.lease.id)
    for _ in range(2):  # its own lease, which outlives the first attempt, refuses no second one
        with pytest.raises(NotBack):
            ground.agent.restore(run_id="run-1")
        (left,) = ground.agent.status().leases
        assert left.lease.id.startswith("rollback-tx-")
    with pytest.raises(LeaseTaken, match="rollback"):
        ground.agent.acquire(ground.lease())

    lost.write_bytes(content)
    ground.agent.restore(run_id="run-1")

    assert ground.look() == before
    assert ground.agent.status().leases == ()


@pytest.mark.parametrize(
    ("holder", "run_id", "is_let"),
    [("rollback", "run-1", True), ("ann@desk", "run-1", False), ("rollback", "run-2", False)],
)
def test_only_what_a_rollback_of_the_same_run_left_lets_its_next_transaction_back(
    ground, holder, run_id, is_let
):
    ground.apply()
    (record,) = ground.edges.leases.all()
    (found,) = transactions.all_newest_first(ground.edges)
    lease = dataclasses.replace(
        record.lease, id="rollback-other-1234", holder=holder, run_id=run_id
    )
    ground.edges.leases.add(dataclasses.replace(record, lease=lease))
    holding.drop(ground.edges, record.lease.id)

    if is_let:
        assert holding.guard_rollback(ground.edges, found).startswith("rollback-tx-")
    else:
        with pytest.raises(LeaseTaken):
            holding.guard_rollback(ground.edges, found)
