"""Transactions in the queue's database that outlive a restart of the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

from fleetctl.clock import Clock
from fleetctl.errors import InputError, QueueError
from fleetctl.queue.address import Address, connect_options
from fleetctl.queue.schema import LOCK, SCHEMA, VERSION

T = TypeVar("T")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_REFUSALS = (
    "no password supplied",
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
)


class Database:
    """One connection, made anew when it breaks; safe to use from several threads.

    A transaction whose fate is unknown because the connection broke is made again: what is
    passed to `run` must come to the same when its work is there already.
    """

    def __init__(
        self,
        address: Address,
        clock: Clock,
        name: str,
        *,
        patience_s: float = 600.0,
        on_wait: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare to connect.

        Args:
            address: of the database.
            clock: for the pauses between attempts.
            name: what the server's list of sessions shows.
            patience_s: how long the database may be away.
            on_wait: told once for each time that it is.
        """
        self._address = address
        self._clock = clock
        self._name = name
        self._patience_s = patience_s
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._connection: Any = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def set_up(self) -> None:
        """Make our tables where they are missing; several may do so at once.

        Raises:
            QueueError: the database can't be used, or another version of fleetctl made its tables.
        """

        def make(cursor: Any) -> int:  # noqa: ANN401 - psycopg is imported when it is needed
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            cursor.execute(SCHEMA)
            cursor.execute("SELECT version FROM fleetctl.version")
            found: int = cursor.fetchone()[0]
            return found

        if (version := self.run(make)) != VERSION:
            raise QueueError(
                f"the queue at {self._address} was made by another version of fleetctl",
                why=f"its tables have version {version}, ours {VERSION}",
                next_step="name another database, or use that version everywhere",
            )

    def run(self, work: Callable[[Any], T]) -> T:
        """Return what `work` returns, given a cursor in a transaction of its own.

        Raises:
            QueueError: the database refuses, or was away for longer than our patience.
        """
        psycopg = _psycopg()
        passing = (psycopg.OperationalError, psycopg.InterfaceError)
        give_up_s = self._clock.monotonic_s() + self._patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                with self._lock:
                    return self._once(work)
            except passing as error:
                if _is_refusal(error) or self._clock.monotonic_s() > give_up_s:
                    raise self._failed(error) from error
                if pause_s == _FIRST_PAUSE_S:
                    self._on_wait(f"waiting for the queue's database: {_first_line(error)}")
            except psycopg.Error as error:
                raise self._failed(error) from error
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _once(self, work: Callable[[Any], T]) -> T:
        """Make one attempt; a connection that broke is dropped."""
        psycopg = _psycopg()
        if self._connection is None:
            self._connection = psycopg.connect(str(self._address), **connect_options(self._name))
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                return work(cursor)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self._drop()
            raise

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _failed(self, error: Exception) -> QueueError:
        return QueueError(
            f"the queue at {self._address} can't be used",
            why=_first_line(error),
            next_step="see that the database is up, takes our login and has room; then try again",
        )


def _is_refusal(error: Exception) -> bool:
    """Whether a server answered, and its answer was no: waiting would change nothing."""
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return str(state)[:2] in {"28", "3D", "42"}
    # libpq gives no code for what a server says before a session exists
    text = str(error)
    return any(words in text for words in _REFUSALS)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _psycopg() -> Any:  # noqa: ANN401 - a module
    """Return the driver, which only the extra `queue` brings.

    Raises:
        InputError: it is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra(error) from error
    return psycopg


def missing_extra(error: ImportError) -> InputError:
    """Return what to say when the packages behind --queue are not installed."""
    return InputError(
        "--queue needs packages that are not installed",
        why=str(error),
        next_step="pip install 'fleetctl[queue]'",
    )
