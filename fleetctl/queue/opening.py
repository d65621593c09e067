"""Join a queue: the engine, our tables, and a place on the roll, opened and left together."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fleetctl.clock import Clock
from fleetctl.queue.address import Address
from fleetctl.queue.database import Database
from fleetctl.queue.durable import DurableQueue
from fleetctl.queue.engine import Engine
from fleetctl.queue.roll import Roll

LOST_AFTER_S = 60.0
POLL_S = 0.5


@dataclass(frozen=True)
class Joined:
    """A process that works with a queue.

    Attributes:
        name: how people call it; workers are told apart by more than that.
        engine: the durable engine in this process.
        database: our tables.
    """

    name: str
    engine: Engine
    database: Database
    clock: Clock

    def campaign(self, campaign: str) -> DurableQueue:
        """Return one campaign's cells."""
        return DurableQueue(self.engine, self.database, campaign, self.clock)


@contextmanager
def joined(
    address: Address,
    name: str,
    clock: Clock,
    *,
    lost_after_s: float = LOST_AFTER_S,
    poll_s: float = POLL_S,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Joined]:
    """Join a queue and be on its roll until the block is left.

    Args:
        address: of the database.
        name: how people call this process, such as `user@machine`.
        clock: for pauses; one that is not stopped by Ctrl-C, since a result must get through.
        lost_after_s: silence after which others declare us lost.
        poll_s: how often the engine looks whether a cell was moved to our queue.
        say: told when the database is away, and which workers were lost.

    Raises:
        QueueError: the database can't be used.
        InputError: the packages are not installed.
    """
    worker = f"{name}-{secrets.token_hex(6)}"

    def on_lost(lost: str, cells: int) -> None:
        say(f"worker {lost} is lost; cells of it that wait again: {cells}")

    with (
        Database(address, clock, f"fleetctl {name}", on_wait=say) as database,
        Database(address, clock, f"fleetctl roll {name}") as beats,
    ):
        database.set_up()
        with (
            Engine(address, worker, poll_s=poll_s) as engine,
            Roll(beats, worker, name, lost_after_s=lost_after_s, on_lost=on_lost),
        ):
            yield Joined(name, engine, database, clock)
