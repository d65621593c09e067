"""Servers, transports and people for the tests of this folder."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.shell import ShellTransport
from tests.host.sshd import SSHD, Person, Sshd, Sshds, make_key

SSH_BACKENDS = (Backend.PARAMIKO, Backend.OPENSSH)


@pytest.fixture(scope="session")
def public_folder() -> Iterator[Path]:
    """A folder that every account can look into, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="fleetctl-test-host-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def login_key(public_folder: Path) -> Path:
    """The key that opens every server of this folder."""
    return make_key(public_folder / "id_ed25519")


@pytest.fixture
def sshds(tmp_path: Path, login_key: Path) -> Iterator[Sshds]:
    """A function-wide set of servers."""
    if SSHD is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    servers = Sshds(tmp_path, login_key)
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def shared_sshd(tmp_path_factory: pytest.TempPathFactory, login_key: Path) -> Iterator[Sshd]:
    """One server with default limits for all tests that only want to log in."""
    if SSHD is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    servers = Sshds(tmp_path_factory.mktemp("shared"), login_key)
    yield servers.start()
    servers.stop()


@pytest.fixture
def open_transport() -> Iterator[Callable[..., ShellTransport]]:
    """Connects with any back end, and closes what it opened."""
    opened: list[ShellTransport] = []
    gate = HandshakeGate()

    def open_one(endpoint: Endpoint, backend: Backend) -> ShellTransport:
        opened.append(connect(endpoint, backend=backend, gate=gate, clock=SystemClock()))
        return opened[-1]

    yield open_one
    for transport in opened:
        transport.close()


@pytest.fixture(params=SSH_BACKENDS, ids=str)
def ssh_backend(request: pytest.FixtureRequest) -> Backend:
    """Both ways to speak SSH, in turn."""
    backend: Backend = request.param
    if backend is Backend.OPENSSH and shutil.which("ssh") is None:
        pytest.skip("no ssh on this machine: install openssh-client")
    return backend


@pytest.fixture
def make_person(public_folder: Path) -> Iterator[Callable[..., Person]]:
    """Makes user accounts and removes them; skips where we may not."""
    if os.getuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can make users")
    made: list[Person] = []

    def make(*, shell: str = "/bin/bash", password: str | None = None) -> Person:
        name = f"fleet{secrets.token_hex(4)}"
        person = Person(name, public_folder / name)
        argv = ["useradd", "-M", "-d", str(person.home), "-s", shell, person.name]
        subprocess.run(argv, check=True, capture_output=True)
        made.append(person)
        person.home.mkdir(mode=0o755)
        shutil.chown(person.home, person.name)
        # `*` is no password at all, and unlike `!` it does not lock the account for keys
        secret = f"{person.name}:{password}" if password else f"{person.name}:*"
        chpasswd = ["chpasswd"] if password else ["chpasswd", "-e"]
        subprocess.run(chpasswd, input=secret.encode(), check=True, capture_output=True)
        return person

    yield make
    for person in made:
        subprocess.run(["userdel", "-f", person.name], check=False, capture_output=True)
