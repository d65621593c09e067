"""Getting in: login keys and agents, each failure with its own name and its own help."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.errors import (
    HostUnreachable,
    LoginRefused,
)
from fleetctl.host.endpoint import Backend, Endpoint
from tests.host.logins import Open, works
from tests.host.sshd import Sshd, Sshds, make_key


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """An ssh-agent of our own, empty."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("no ssh-agent on this machine")
    place = tmp_path / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not place.exists():
        assert process.poll() is None
    yield place
    process.terminate()
    process.wait()


def add_to(agent: Path, key: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True, capture_output=True)


class TestLoginKeys:
    """Which keys are tried, and what is said when none fits."""

    def test_a_key_that_is_not_wanted_is_named(
        self, shared_sshd: Sshd, open_transport: Open, tmp_path: Path
    ):
        key = make_key(tmp_path / "id_other")

        with pytest.raises(LoginRefused) as caught:
            open_transport(shared_sshd.endpoint(identity_files=(key,)), Backend.PARAMIKO)

        assert str(key) in caught.value.why

    def test_a_login_that_is_refused_is_called_so(
        self, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        key = make_key(tmp_path / "id_other")

        with pytest.raises(LoginRefused, match="gpu-1"):
            open_transport(shared_sshd.endpoint(identity_files=(key,)), ssh_backend)

    def test_a_refused_login_is_not_tried_again(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        sshd = sshds.start()
        key = make_key(tmp_path / "id_other")

        with pytest.raises(LoginRefused):
            open_transport(sshd.endpoint(identity_files=(key,)), ssh_backend)

        assert sshd.log.count("Connection from") == 2  # one is the fixture's, for the banner

    @pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
    def test_every_usual_kind_of_key_logs_in(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path, kind: str
    ):
        key = make_key(tmp_path / f"id_{kind}", kind)
        sshd = sshds.start(f"AuthorizedKeysFile {key}.pub")

        assert works(open_transport(sshd.endpoint(identity_files=(key,)), ssh_backend))

    def test_a_user_certificate_logs_in(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        authority, key = make_key(tmp_path / "ca"), make_key(tmp_path / "id_ed25519")
        user = sshds.start().endpoint().user
        subprocess.run(
            ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", str(user), f"{key}.pub"],
            check=True,
            capture_output=True,
        )
        sshd = sshds.start(f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile none")

        assert works(open_transport(sshd.endpoint(identity_files=(key,)), ssh_backend))

    def test_a_key_with_a_passphrase_is_explained(
        self, shared_sshd: Sshd, open_transport: Open, tmp_path: Path
    ):
        key = make_key(tmp_path / "id_locked", passphrase="secret")

        with pytest.raises(LoginRefused, match="passphrase") as caught:
            open_transport(shared_sshd.endpoint(identity_files=(key,)), Backend.PARAMIKO)

        assert f"ssh-add {key}" in caught.value.why

    def test_a_fido_key_is_explained(self, shared_sshd: Sshd, open_transport: Open, tmp_path: Path):
        key = tmp_path / "id_ed25519_sk"
        key.write_text("not read, because the public half tells enough")
        Path(f"{key}.pub").write_text(
            "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t me\n"
        )

        with pytest.raises(LoginRefused, match="FIDO") as caught:
            open_transport(shared_sshd.endpoint(identity_files=(key,)), Backend.PARAMIKO)

        assert '`transport = "openssh"` in the inventory' in caught.value.next_step

    @pytest.mark.parametrize("content", ["", "garbage\n", "-----BEGIN OPENSSH PRIVATE KEY-----\n"])
    def test_a_file_that_is_no_key_is_named(
        self, shared_sshd: Sshd, open_transport: Open, tmp_path: Path, content: str
    ):
        key = tmp_path / "id_broken"
        key.write_text(content)

        with pytest.raises(LoginRefused, match="id_broken can't be used"):
            open_transport(shared_sshd.endpoint(identity_files=(key,)), Backend.PARAMIKO)

    def test_a_key_in_the_agent_logs_in(
        self,
        shared_sshd: Sshd,
        open_transport: Open,
        ssh_backend: Backend,
        tmp_path: Path,
        agent: Path,
    ):
        add_to(agent, shared_sshd.login_key)
        config = tmp_path / "ssh_config"
        config.write_text(f"IdentityAgent {agent}\nIdentityFile none\n")

        endpoint = shared_sshd.endpoint(identity_files=(), ssh_config=config)
        assert works(open_transport(endpoint, ssh_backend))

    def test_the_public_half_picks_a_key_of_the_agent(
        self,
        shared_sshd: Sshd,
        open_transport: Open,
        ssh_backend: Backend,
        tmp_path: Path,
        agent: Path,
    ):
        for number in range(8):  # more than MaxAuthTries allows to be tried
            add_to(agent, make_key(tmp_path / f"other-{number}"))
        add_to(agent, shared_sshd.login_key)
        config = tmp_path / "ssh_config"
        config.write_text(f"IdentityAgent {agent}\n")
        half = Path(f"{shared_sshd.login_key}.pub")

        endpoint = shared_sshd.endpoint(identity_files=(half,), ssh_config=config)
        assert works(open_transport(endpoint, ssh_backend))

    def test_too_many_keys_are_a_refused_login(
        self,
        shared_sshd: Sshd,
        open_transport: Open,
        ssh_backend: Backend,
        tmp_path: Path,
        agent: Path,
    ):
        for number in range(8):
            add_to(agent, make_key(tmp_path / f"other-{number}"))
        config = tmp_path / "ssh_config"
        config.write_text(f"IdentityAgent {agent}\nIdentityFile none\n")

        with pytest.raises(LoginRefused):
            open_transport(shared_sshd.endpoint(identity_files=(), ssh_config=config), ssh_backend)

    def test_a_dead_agent_is_no_obstacle(
        self, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        place = tmp_path / "agent"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(place))
        config = tmp_path / "ssh_config"
        config.write_text(f"IdentityAgent {place}\n")

        assert works(open_transport(shared_sshd.endpoint(ssh_config=config), ssh_backend))

    def test_a_second_factor_is_asked_of_the_other_back_end(
        self, sshds: Sshds, open_transport: Open
    ):
        sshd = sshds.start(
            "KbdInteractiveAuthentication yes",
            "PasswordAuthentication yes",
            "AuthenticationMethods publickey,password",
        )

        with pytest.raises(LoginRefused, match="more is asked for"):
            open_transport(sshd.endpoint(), Backend.PARAMIKO)


class TestNobodyThere:
    """Places that are not an SSH server."""

    def test_a_name_without_an_address(self, open_transport: Open, ssh_backend: Backend):
        endpoint = Endpoint(
            name="gpu-9", address="no-such-host.invalid", ssh_config=Path("/dev/null")
        )

        with pytest.raises(HostUnreachable, match="gpu-9"):
            open_transport(endpoint, ssh_backend)

    @pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    def test_a_server_that_hangs_up_or_speaks_something_else(
        self, open_transport: Open, ssh_backend: Backend, greeting: bytes
    ):
        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(greeting)

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve)
            thread.start()
            endpoint = Endpoint(
                name="gpu-9",
                address="127.0.0.1",
                port=listener.getsockname()[1],
                ssh_config=Path("/dev/null"),
                connect_deadline_s=1,
            )
            try:
                with pytest.raises(HostUnreachable, match="gpu-9"):
                    open_transport(endpoint, ssh_backend)
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()

    def test_a_server_that_never_speaks(self, open_transport: Open, ssh_backend: Backend):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            endpoint = Endpoint(
                name="gpu-9",
                address="127.0.0.1",
                port=listener.getsockname()[1],
                ssh_config=Path("/dev/null"),
                connect_deadline_s=1,
            )

            with pytest.raises(HostUnreachable, match="gpu-9"):
                open_transport(endpoint, ssh_backend)
