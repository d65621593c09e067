"""A real PostgreSQL for the tests of the queue, and workers that are processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks.scale.postgres import NoPostgres, Postgres, postgres
from tests.queue.machines import Machines


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A server; without PostgreSQL's programs the test is skipped."""
    pytest.importorskip("dbos", reason="the extra `queue` is not installed")
    try:
        with postgres() as running:
            yield running
    except NoPostgres as missing:
        pytest.skip(f"no PostgreSQL: {missing}")


@pytest.fixture(autouse=True, scope="session")
def password_file(server: Postgres) -> Iterator[None]:
    """The password is where libpq looks for it."""
    before = os.environ.get("PGPASSFILE")
    os.environ.update(server.environment)
    yield
    if before is None:
        del os.environ["PGPASSFILE"]
    else:
        os.environ["PGPASSFILE"] = before


@pytest.fixture(scope="module")
def url(server: Postgres) -> str:
    """An empty database for the tests of one file."""
    return server.new_database()


@pytest.fixture(scope="module")
def machines(url: str) -> Iterator[Machines]:
    """Workers on one queue, each a process."""
    with Machines(url) as made:
        yield made
