"""Every back end keeps the same contract: local, paramiko, OpenSSH, and sudo over one of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.host.become import SudoTransport
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.shell import ShellTransport
from fleetctl.host.transport import Transport
from tests.contracts.transport import TransportContract

KINDS = ("local", "paramiko", "openssh", "sudo over local", "sudo over paramiko")


class TestEveryTransport(TransportContract):
    """The contract, once for each kind."""

    @pytest.fixture
    def host_dir(self, tmp_path: Path) -> Path:
        folder = tmp_path / "host"
        folder.mkdir()
        return folder

    @pytest.fixture(params=KINDS)
    def transport(
        self,
        request: pytest.FixtureRequest,
        open_transport: Callable[[Endpoint, Backend], ShellTransport],
    ) -> Transport:
        is_sudo = request.param.startswith("sudo")
        if is_sudo and (os.getuid() != 0 or shutil.which("sudo") is None):
            pytest.skip("needs root and sudo")
        backend = Backend(request.param.removeprefix("sudo over "))
        if backend is Backend.LOCAL:
            endpoint = Endpoint(name="here", address="localhost")
        else:
            endpoint = request.getfixturevalue("shared_sshd").endpoint()
        inner = open_transport(endpoint, backend)
        return SudoTransport(inner) if is_sudo else inner
