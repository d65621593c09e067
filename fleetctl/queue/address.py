"""Where a queue is: the address of a PostgreSQL database, without a password in it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from fleetctl.errors import InputError

_SCHEMES = ("postgresql", "postgres")
_CONNECT_S = 5
# a peer that has gone without a word is noticed within this time
_SILENCE_MS = 15_000


@dataclass(frozen=True)
class Address:
    """A database as libpq names it; safe to print, since no password can be in it.

    Attributes:
        rest: what follows the scheme, such as `//me@db.example/fleet?sslmode=verify-full`.
    """

    rest: str

    def __str__(self) -> str:
        return f"postgresql:{self.rest}"

    @property
    def for_engine(self) -> str:
        """The same for SQLAlchemy, which wants the driver's name."""
        return f"postgresql+psycopg:{self.rest}"


def parse_address(text: str) -> Address:
    """Return the address of a queue.

    Raises:
        InputError: it names no PostgreSQL database, or a password is in it.
    """
    try:
        parts = urlsplit(text)
        password, database = parts.password, parts.path.strip("/")
        parameters = {name for name, _ in parse_qsl(parts.query)}
    except ValueError as error:
        raise _refused("it can't be read", str(error)) from error
    if parts.scheme not in _SCHEMES:
        raise _refused(f"a queue lives in PostgreSQL, not in {parts.scheme or 'a file'}", "")
    if not database:
        raise _refused("it names no database", "")
    if password is not None or "password" in parameters:
        raise InputError(
            "a password is in the queue's address",
            why="addresses are shown in process lists, logs and reports",
            next_step="put it into ~/.pgpass, the file that PGPASSFILE names, or PGPASSWORD",
        )
    return Address(text.split(":", 1)[1])


def connect_options(name: str) -> dict[str, str | int]:
    """Return libpq's options for a connection that notices when its peer is gone.

    Args:
        name: what the server's list of sessions shows.
    """
    return {
        "application_name": name[:63],
        "connect_timeout": _CONNECT_S,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": _SILENCE_MS,
    }


def _refused(why: str, detail: str) -> InputError:
    # the text itself is not repeated: it may hold a password in an odd place
    return InputError(
        "this is no address of a queue",
        why=f"{why}: {detail}" if detail else why,
        next_step="write --queue postgresql://USER@HOST:PORT/DATABASE",
    )
