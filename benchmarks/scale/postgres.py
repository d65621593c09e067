"""A real PostgreSQL of one's own, in a folder of its own, gone with its owner.

The server refuses to run as root: for root it runs as Debian's user `postgres`, else `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path("/usr/lib/postgresql")
USER = "fleet"
START_DEADLINE_S = 60
_PREFIX = "fleetctl-pg-"


class NoPostgres(Exception):
    """This machine has no PostgreSQL programs; says what to install."""


@dataclass(frozen=True)
class Postgres:
    """A server that can be stopped, killed and started again at the same address.

    Attributes:
        folder: with data, log and the password file.
        port: on 127.0.0.1.
    """

    folder: Path
    port: int

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        """Return the address of a database; the password is in the password file."""
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}/{database}"

    @property
    def pass_file(self) -> Path:
        """The file that PGPASSFILE names."""
        return self.folder / "pgpass"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a client needs in its environment."""
        return {"PGPASSFILE": str(self.pass_file)}

    @property
    def password(self) -> str:
        """The password, for a search that must not find it."""
        return self.pass_file.read_text(encoding="utf-8").strip().rpartition(":")[2]

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        log = str(self.folder / "log")
        self._control("start", "-w", "-t", str(START_DEADLINE_S), "-l", log)

    def stop(self) -> None:
        """End the server at once, as a power cut does: sessions break, recovery follows."""
        self._control("stop", "-m", "immediate", "-w")

    def kill(self) -> None:
        """Kill the server's first process; its children leave when they notice."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)

    def new_database(self) -> str:
        """Make an empty database and return its address."""
        name = f"t{secrets.token_hex(4)}"
        argv = [program("psql"), "-qX", self.url(), "-c", f"CREATE DATABASE {name}"]
        subprocess.run(
            argv, check=True, env={**os.environ, **self.environment}, capture_output=True
        )
        return self.url(name)

    def _control(self, verb: str, *options: str) -> None:
        argv = [program("pg_ctl"), verb, "-D", str(self.folder / "data"), *options]
        _as_server(argv, self.folder)


@contextlib.contextmanager
def postgres(*, fsync: bool = False, connections: int = 100) -> Iterator[Postgres]:
    """Run a server.

    Args:
        fsync: whether commits wait for the disk; off, a killed server still loses nothing, since
            the operating system keeps what was written.
        connections: that it takes at most.

    Raises:
        NoPostgres: it is not installed.
    """
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        server = _made(folder, fsync=fsync, connections=connections)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """End servers whose owners were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                Postgres(folder, 0).stop()
            shutil.rmtree(folder, ignore_errors=True)


def _made(folder: Path, *, fsync: bool, connections: int) -> Postgres:
    password = secrets.token_hex(12)
    port = free_port()
    server = Postgres(folder, port)
    first = folder / "first-password"
    first.write_text(password, encoding="utf-8")
    server.pass_file.write_text(f"*:*:*:{USER}:{password}\n", encoding="utf-8")
    server.pass_file.chmod(0o600)
    if (owner := _owner()) is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        os.chown(first, owner.pw_uid, owner.pw_gid)
    _as_server(
        [
            *(program("initdb"), "-D", str(folder / "data"), "-U", USER, "--no-sync"),
            *("-A", "scram-sha-256", "--pwfile", str(first), "-E", "UTF8", "--locale", "C"),
        ],
        folder,
    )
    first.unlink()
    settings = {
        "port": str(port),
        "listen_addresses": "'127.0.0.1'",
        "unix_socket_directories": f"'{folder}'",
        "max_connections": str(connections),
        "fsync": "on" if fsync else "off",
        "shared_buffers": "'64MB'",
    }
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    with (folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(lines)
    return server


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, the newest version's.

    Raises:
        NoPostgres: it is not installed.
    """
    versions = sorted(PROGRAMS.glob(f"*/bin/{name}"), key=lambda p: float(p.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        raise NoPostgres(f"no {name} here: `apt-get install postgresql` as root")
    return found


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _owner() -> pwd.struct_passwd | None:
    """Return whom the server runs as; None means us, who are no root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres("PostgreSQL must not run as root, and there is no other user")


def _as_server(argv: list[str], folder: Path) -> None:
    owner = _owner()
    who = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    subprocess.run(
        argv,
        check=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **who,  # type: ignore[call-overload]
    )
