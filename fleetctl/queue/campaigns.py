"""Which campaigns wait for workers, and which machine of the fleet which worker has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.queue import statements as sql
from fleetctl.queue.database import Database


@dataclass(frozen=True)
class OpenCampaign:
    """A campaign that is not over.

    Attributes:
        head: what its controller said of it, such as the name of the spec.
        blocks: in which something waits or is under way.
    """

    campaign: str
    head: Mapping[str, Any]
    blocks: frozenset[str]


class Campaigns:
    """The campaigns of a queue."""

    def __init__(self, database: Database) -> None:
        """Use the database of a queue; its tables are there."""
        self._database = database

    def announce(self, campaign: str, head: Mapping[str, Any]) -> None:
        """Let workers know of a campaign, or of its new head."""
        row = [campaign, json.dumps(head)]
        self._database.run(lambda cursor: cursor.execute(sql.ANNOUNCE, row))

    def close(self, campaign: str) -> None:
        """Let no worker begin with a campaign any more; what is under way ends."""
        self._database.run(lambda cursor: cursor.execute(sql.CLOSE, [campaign]))

    def is_open(self, campaign: str) -> bool:
        """Whether workers may still begin with a campaign."""

        def read(cursor: Any) -> bool:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.IS_OPEN, [campaign])
            row = cursor.fetchone()
            return row is not None and bool(row[0])

        return self._database.run(read)

    def unfinished(self) -> tuple[OpenCampaign, ...]:
        """Return the campaigns with cells that wait or are under way, oldest first."""

        def read(cursor: Any) -> tuple[OpenCampaign, ...]:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.UNFINISHED)
            return tuple(
                OpenCampaign(campaign, head, frozenset(blocks))
                for campaign, head, blocks in cursor.fetchall()
            )

        return self._database.run(read)

    def claim(self, machine: str, worker: str) -> bool:
        """Take a machine of the fleet for one worker; False when another has it.

        It saves two workers from waiting for each other at a host. What decides is the host's
        own lease.
        """

        def take(cursor: Any) -> bool:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.SEEN_AGAIN, [worker])
            cursor.execute(sql.CLAIM, [machine, worker])
            return bool(cursor.fetchone()[0] == worker)

        return self._database.run(take)

    def release(self, machine: str, worker: str) -> None:
        """Let others have a machine."""
        row = [machine, worker]
        self._database.run(lambda cursor: cursor.execute(sql.RELEASE, row))
