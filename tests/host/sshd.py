"""A real sshd on loopback with keys and a configuration of its own, and people who log in."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.clock import SystemClock
from fleetctl.host.endpoint import Endpoint
from tests.host.ports import silent_port
from tests.host.processes import descendants, signal_all

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


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
        signal_all(descendants(self.process.pid), signal.SIGCONT)
        self.process.terminate()
        self.process.wait(60)


@dataclass
class Sshds:
    """Starts as many as a test wants; all share the login key of the test session."""

    folder: Path
    login_key: Path
    running: list[Sshd] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(
        self, *lines: str, key_kinds: tuple[str, ...] = ("ed25519",), known_as: str = ""
    ) -> Sshd:
        with silent_port() as held:  # until the server listens on it
            return self._start_on(held.getsockname()[1], lines, key_kinds, known_as)

    def _start_on(
        self, port: int, lines: tuple[str, ...], key_kinds: tuple[str, ...], known_as: str
    ) -> Sshd:
        assert SSHD is not None
        folder = self.folder / f"sshd-{next(self.numbers)}"
        folder.mkdir()
        keys = [make_key(folder / f"host_{kind}", kind) for kind in key_kinds]
        config = [
            *lines,  # first, because sshd takes the first value it finds
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


def wait_for_banner(sshd: Sshd) -> None:
    clock = SystemClock()
    until_s = clock.monotonic_s() + 60
    while clock.monotonic_s() < until_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", sshd.port)) as s:
            if s.recv(4) == b"SSH-":
                return
        assert sshd.process.poll() is None, sshd.log
        clock.sleep(0.02)
    raise AssertionError(f"no sshd: {sshd.log}")
