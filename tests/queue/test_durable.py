"""The queue over DBOS and PostgreSQL keeps every promise of a queue, with processes as machines."""

from __future__ import annotations

import pytest

from tests.contracts.cell_queue import CellQueueContract
from tests.queue.machines import ManyMachines


@pytest.fixture
def campaign(machines):
    yield ManyMachines(machines)
    machines.release()


class TestTheContract(CellQueueContract):
    """`DurableQueue` is held to it, every worker a process of its own."""
