"""Bytes by their digest: what a campaign needs and what it brought, for machines elsewhere.

A worker has no checkout of the spec and the controller no disk of the worker: both find files in
the database, each content once, and take nothing whose digest is not what was promised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import QueueError
from fleetctl.queue import statements as sql
from fleetctl.queue.database import Database

# beyond it a file stays where it was made, and the database says where that is
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class StoredFile:
    """A file of a campaign or of an attempt.

    Attributes:
        sha256: of its content, 64 hex digits.
        place: where it lies when it was too large for the database; empty otherwise.
    """

    sha256: str
    size_bytes: int
    place: str


class Content:
    """Files by owner and path; an owner is a campaign, or one attempt at one of its cells."""

    def __init__(self, database: Database) -> None:
        """Use the database of a queue; its tables are there."""
        self._database = database

    def attach(self, owner: str, files: Mapping[str, bytes], *, only_first: bool = False) -> None:
        """Keep files under an owner, each in a transaction of its own.

        Args:
            owner: whose they are.
            files: path -> content.
            only_first: a path that is known stays what it is.
        """
        for path, content in files.items():
            self._keep(owner, path, content, only_first=only_first)

    def mention(self, owner: str, path: str, file: StoredFile) -> None:
        """Say where a file lies that is too large for the database."""
        row = [owner, path, file.sha256, file.size_bytes, file.place]
        self._database.run(lambda cursor: cursor.execute(sql.ATTACH, row))

    def files(self, owner: str) -> dict[str, StoredFile]:
        """Return what an owner has, by path."""

        def read(cursor: Any) -> dict[str, StoredFile]:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.FILES, [owner])
            return {path: StoredFile(*rest) for path, *rest in cursor.fetchall()}

        return self._database.run(read)

    def bytes_of(self, file: StoredFile, path: str) -> bytes:
        """Return a file's content.

        Raises:
            QueueError: it is not there, or is not what its digest promises.
        """

        def read(cursor: Any) -> bytes | None:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.GET_CONTENT, [file.sha256])
            row = cursor.fetchone()
            return None if row is None else bytes(row[0])

        content = self._database.run(read)
        if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
            raise QueueError(
                f"the queue's database has no {path} with the digest that was promised",
                why="it holds nothing under it" if content is None else "its bytes were changed",
                next_step="start a new run; somebody wrote into the tables of fleetctl",
            )
        return content

    def _keep(self, owner: str, path: str, content: bytes, *, only_first: bool) -> None:
        digest = hashlib.sha256(content).hexdigest()
        row = [owner, path, digest, len(content), ""]
        attach = sql.ATTACH_FIRST if only_first else sql.ATTACH

        def write(cursor: Any) -> None:  # noqa: ANN401 - psycopg's class
            cursor.execute(sql.HAS_CONTENT, [digest])
            if cursor.fetchone() is None:
                cursor.execute(sql.PUT_CONTENT, [digest, content])
            cursor.execute(attach, row)

        self._database.run(write)
