"""The one place that builds the edges: connections, clock, signals, inventory, secrets."""

from __future__ import annotations

import getpass
import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fleetctl.cli.console import Console
from fleetctl.cli.options import DEFAULT_LAB_DIR, LAB_DIR_VARIABLE
from fleetctl.cli.passwords import SudoPasswords
from fleetctl.cli.typed import typed
from fleetctl.clock import SystemClock
from fleetctl.errors import ExitCode, InputError
from fleetctl.host.agent_client import Agent
from fleetctl.host.become import SudoTransport
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.transport import Transport
from fleetctl.spec.inventory import Host, Inventory
from fleetctl.spec.loader import load_inventory
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.stopping import Stop, StoppableClock

_FLEET = Path("inventory/fleet.toml")


def _default_inventories() -> tuple[Path, Path]:
    """Return where an inventory is looked for: the fleet's, then that of the lab."""
    return (_FLEET, Path(os.environ.get(LAB_DIR_VARIABLE) or DEFAULT_LAB_DIR) / "inventory.toml")


def the_inventory(path: Path | None, console: Console) -> Inventory:
    """Return the inventory named, or the first default that exists; says which one it took.

    Raises:
        InputError: there is none.
    """
    places = _default_inventories()
    found = path or next((p for p in places if p.is_file()), None)
    if found is None:
        raise InputError(
            "no inventory",
            why=f"--inventory is not given, and neither {' nor '.join(map(str, places))} is there,"
            f" seen from {Path.cwd()}",
            next_step="go to the directory that has one, write inventory/fleet.toml as"
            " inventory/example.toml, or `fleetctl lab up`",
        )
    if path is None:
        console.say(f"inventory: {found}")
    return load_inventory(found)


@contextmanager
def edges(runs: Path, console: Console) -> Iterator[Edges]:
    """Yield the outside world; while it lasts, Ctrl-C asks for an orderly end."""
    # what paramiko logs is told again, in our words, by the errors it leads to
    logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
    stop = Stop()
    gate = HandshakeGate()
    with _signals(stop, console), SudoPasswords(_user()) as passwords:
        yield Edges(
            connect=lambda name, host: _connect(name, host, gate, passwords),
            agent=_agent,
            clock=StoppableClock(SystemClock(), stop),
            stop=stop,
            talk=console,
            holder=f"{_user()}@{socket.gethostname()}",
            runs=runs,
            salt=lambda: secrets.token_hex(2),
        )


def _user() -> str:
    """Return who we are, also where the system has no name for our number, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def _connect(name: str, host: Host, gate: HandshakeGate, passwords: SudoPasswords) -> Transport:
    endpoint = Endpoint(
        name=name,
        address=host.address,
        user=host.user,
        port=host.port,
        identity_files=(Path(host.identity),) if host.identity else (),
        known_hosts_files=(Path(host.known_hosts),) if host.known_hosts else (),
        proxy_jump=host.proxy_jump,
        ssh_config=Path(host.ssh_config) if host.ssh_config else None,
        connect_deadline_s=host.connect_deadline,
        accept_new=host.accept_new_host_key,
    )
    password = None if host.sudo is None else passwords.of(host.sudo)
    way = connect(endpoint, backend=Backend(host.transport), gate=gate, clock=SystemClock())
    return way if host.sudo is None else SudoTransport(way, password=password)


def _agent(transport: Transport, host: Host) -> Agent:
    return Agent(transport, python=host.agent_python)


@contextmanager
def _signals(stop: Stop, console: Console) -> Iterator[None]:
    """First signal: stop new work and restore. Second: leave at once; the hosts restore alone."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_asked:
            for line in _leaving(stop):
                console.say(line)
            os._exit(ExitCode.INTERRUPTED)
        console.say(_stopping(stop))
        stop.ask(f"signal {signal.Signals(number).name}")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)  # below `nohup` a closed terminal means nothing
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopping(stop: Stop) -> str:
    held = stop.holding.hosts if stop.holding else ()
    back = f"; being restored: {', '.join(held)}" if held else ""
    return f"stopping: no new work{back} (again: leave at once)"


def _leaving(stop: Stop) -> list[str]:
    """Return what is said by a process that leaves without another word: what to type next."""
    if stop.holding is None:
        lines = [f"`{typed()}` starts it again", "`fleetctl status` shows what hosts hold"]
    else:
        lines = stop.holding.leaving()
    return ["leaving at once; nothing more is done from here", *(f"  {line}" for line in lines)]
