"""A real sshd on loopback with keys and a configuration of its own, and people who log in to it."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.shell import ShellTransport

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SSH_BACKENDS = (Backend.PARAMIKO, Backend.OPENSSH)


@dataclass
class Sshd:
    """One running sshd and what is needed to log in to it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    host_key: Path
    login_key: Path
    known_hosts: Path

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def endpoint(self, **changes: object) -> Endpoint:
        values: dict[str, object] = {
            "name": "gpu-1",
            "address": "127.0.0.1",
            "port": self.port,
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "identity_files": (self.login_key,),
            "known_hosts_files": (self.known_hosts,),
            "ssh_config": Path("/dev/null"),
            "proxy_jump": (),
        }
        return Endpoint(**{**values, **changes})  # type: ignore[arg-type]

    def session_pids(self) -> list[int]:
        """Return the processes that serve logged-in connections, newest first."""
        return sorted(descendants(self.process.pid), reverse=True)

    def stop(self) -> None:
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.terminate()
        self.process.wait(10)


@dataclass
class Sshds:
    """Starts as many as a test wants; all share the login key of the test session."""

    folder: Path
    login_key: Path
    running: list[Sshd] = field(default_factory=list)

    def start(
        self, *lines: str, key_kinds: tuple[str, ...] = ("ed25519",), known_as: str = ""
    ) -> Sshd:
        assert SSHD is not None
        folder = self.folder / f"sshd-{len(self.running)}"
        folder.mkdir()
        keys = [make_key(folder / f"host_{kind}", kind) for kind in key_kinds]
        port = free_port()
        config = [
            "ListenAddress 127.0.0.1",
            f"Port {port}",
            *(f"HostKey {key}" for key in keys),
            f"AuthorizedKeysFile {self.login_key}.pub",
            f"PidFile {folder}/pid",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "StrictModes no",
            "UsePAM no",
            "LogLevel VERBOSE",
            *lines,
        ]
        (folder / "config").write_text("\n".join(config) + "\n")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(folder / "config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        known = folder / "known_hosts"
        name = known_as or f"[127.0.0.1]:{port}"
        texts = (Path(f"{key}.pub").read_text() for key in keys)
        known.write_text("".join(f"{name} {' '.join(text.split()[:2])}\n" for text in texts))
        sshd = Sshd(folder, port, process, keys[0], self.login_key, known)
        self.running.append(sshd)
        wait_for_banner(sshd)
        return sshd

    def stop(self) -> None:
        for sshd in self.running:
            sshd.stop()


@dataclass(frozen=True)
class Person:
    """A user account of this machine, made for one test."""

    name: str
    home: Path


def make_key(path: Path, kind: str = "ed25519", *, passphrase: str = "") -> Path:
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_for_banner(sshd: Sshd) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + 10
    while clock.monotonic_s() < until_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", sshd.port)) as s:
            if s.recv(4) == b"SSH-":
                return
        assert sshd.process.poll() is None, sshd.log
        clock.sleep(0.02)
    raise AssertionError(f"no sshd: {sshd.log}")


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        todo += children.get(todo[0], [])
        found += children.get(todo.pop(0), [])
    return found


def is_running(pid: int) -> bool:
    """Say whether a process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with(word: str) -> list[int]:
    """Return the live processes whose command line holds a word, as a whole argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0") and is_running(
                int(path.parent.name)
            ):
                found.append(int(path.parent.name))
    return found


def wait_until(is_true: Callable[[], bool], *, deadline_s: float = 10.0) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + deadline_s
    while not is_true():
        assert clock.monotonic_s() < until_s, "it did not become true in time"
        clock.sleep(0.02)


@pytest.fixture(scope="session")
def login_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("login") / "id_ed25519")


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
def make_person(tmp_path: Path) -> Iterator[Callable[..., Person]]:
    """Makes user accounts and removes them; skips where we may not."""
    if os.getuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can make users")
    made: list[Person] = []
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o011)

    def make(*, shell: str = "/bin/bash", password: str | None = None) -> Person:
        person = Person(f"fleet{secrets.token_hex(4)}", tmp_path / f"home-{len(made)}")
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
