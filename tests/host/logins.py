"""What tests of logins say often: whether one works, and how a server and a key are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.shell import ShellTransport
from tests.host.sshd import Sshd

Open = Callable[[Endpoint, Backend], ShellTransport]


def works(transport: ShellTransport) -> bool:
    return transport.run(["echo", "in"], deadline_s=30).stdout == b"in\n"


def name_of(sshd: Sshd) -> str:
    return f"[127.0.0.1]:{sshd.port}"


def public(path: Path) -> str:
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])
