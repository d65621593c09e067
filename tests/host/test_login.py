"""Getting in: host keys, login keys and agents, each failure with its own name and its own help."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.errors import (
    HostKeyRejected,
    HostUnreachable,
    LoginRefused,
    SshConfigRefused,
)
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.known_hosts import parse
from fleetctl.host.shell import ShellTransport
from tests.host.sshd import Sshd, Sshds, make_key

Open = Callable[[Endpoint, Backend], ShellTransport]


def works(transport: ShellTransport) -> bool:
    return transport.run(["echo", "in"], deadline_s=30).stdout == b"in\n"


def name_of(sshd: Sshd) -> str:
    return f"[127.0.0.1]:{sshd.port}"


def public(path: Path) -> str:
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


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


class TestHostKeys:
    """Nothing is said to a host that has not proven itself."""

    def test_an_unknown_key_is_refused_with_the_line_that_would_help(
        self, sshds: Sshds, open_transport: Open
    ):
        sshd = sshds.start()
        sshd.known_hosts.write_text("")

        with pytest.raises(HostKeyRejected, match=r"gpu-1 is not known") as caught:
            open_transport(sshd.endpoint(), Backend.PARAMIKO)

        assert f"{name_of(sshd)} {public(sshd.host_key)}" in caught.value.next_step
        assert str(sshd.known_hosts) in caught.value.next_step
        assert "SHA256:" in caught.value.why

    def test_an_unknown_key_is_refused_before_the_login(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        sshd = sshds.start()
        sshd.known_hosts.write_text("")

        with pytest.raises(HostKeyRejected, match="not known"):
            open_transport(sshd.endpoint(), ssh_backend)

        assert "Accepted" not in sshd.log
        assert "Failed publickey" not in sshd.log
        assert sshd.known_hosts.read_text() == ""

    @pytest.mark.parametrize("accept_new", [False, True])
    def test_a_changed_key_is_refused_whatever_is_asked_for(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, accept_new: bool
    ):
        sshd = sshds.start()
        other = make_key(sshd.folder / "other")
        sshd.known_hosts.write_text(f"{name_of(sshd)} {public(other)}\n")

        with pytest.raises(HostKeyRejected, match="changed") as caught:
            open_transport(sshd.endpoint(accept_new=accept_new), ssh_backend)

        assert str(sshd.known_hosts) in f"{caught.value.why}{caught.value.next_step}"
        assert "Accepted" not in sshd.log

    def test_a_revoked_key_is_refused_although_it_is_known(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        sshd = sshds.start()
        with sshd.known_hosts.open("a") as lines:
            lines.write(f"@revoked * {public(sshd.host_key)}\n")

        with pytest.raises(HostKeyRejected, match="revoked"):
            open_transport(sshd.endpoint(), ssh_backend)

        assert "Accepted" not in sshd.log

    @pytest.mark.parametrize("hashing", ["HashKnownHosts no", "HashKnownHosts yes"])
    def test_a_first_key_is_learnt_when_asked_for_and_known_the_next_time(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path, hashing: str
    ):
        sshd = sshds.start()
        config = tmp_path / "ssh_config"
        config.write_text(f"{hashing}\n")
        known = tmp_path / "learnt"
        endpoint = sshd.endpoint(known_hosts_files=(known,), ssh_config=config)

        assert works(
            open_transport(
                sshd.endpoint(known_hosts_files=(known,), ssh_config=config, accept_new=True),
                ssh_backend,
            )
        )

        assert ("127.0.0.1" in known.read_text()) == (hashing == "HashKnownHosts no")
        (entry,) = parse(known.read_text(), "")
        assert entry.key.text == public(sshd.host_key)
        for backend in (Backend.PARAMIKO, ssh_backend):
            assert works(open_transport(endpoint, backend))

    def test_a_host_is_asked_for_the_kind_of_key_that_is_known(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend
    ):
        sshd = sshds.start(key_kinds=("ed25519", "rsa", "ecdsa"))
        lines = sshd.known_hosts.read_text().splitlines()
        for line in lines:
            sshd.known_hosts.write_text(f"{line}\n")

            assert works(open_transport(sshd.endpoint(), ssh_backend))

    def test_the_users_and_the_systems_files_are_the_default(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        sshd = sshds.start()
        for option in ("UserKnownHostsFile", "GlobalKnownHostsFile"):
            config = tmp_path / option
            both = {"UserKnownHostsFile": "none", "GlobalKnownHostsFile": "none"}
            both[option] = str(sshd.known_hosts)
            config.write_text("".join(f"{key} {value}\n" for key, value in both.items()))

            endpoint = sshd.endpoint(known_hosts_files=(), ssh_config=config)
            assert works(open_transport(endpoint, ssh_backend))

    def test_no_configuration_can_switch_the_check_off(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        sshd = sshds.start()
        config = tmp_path / "ssh_config"
        config.write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")

        with pytest.raises(HostKeyRejected):
            open_transport(sshd.endpoint(known_hosts_files=(), ssh_config=config), ssh_backend)

    def test_an_alias_for_the_key_is_honoured(
        self, sshds: Sshds, open_transport: Open, ssh_backend: Backend, tmp_path: Path
    ):
        sshd = sshds.start(known_as="the-real-name")
        config = tmp_path / "ssh_config"
        config.write_text("HostKeyAlias the-real-name\n")

        assert works(open_transport(sshd.endpoint(ssh_config=config), ssh_backend))


class TestAuthorities:
    """Hosts that are trusted through a certificate authority."""

    @pytest.fixture
    def sshd(self, sshds: Sshds) -> Sshd:
        authority = make_key(sshds.folder / "ca")
        key = make_key(sshds.folder / "certified")
        subprocess.run(
            [
                "ssh-keygen",
                "-q",
                "-s",
                str(authority),
                "-I",
                "host",
                "-h",
                "-n",
                "127.0.0.1",
                f"{key}.pub",
            ],
            check=True,
            capture_output=True,
        )
        sshd = sshds.start(f"HostKey {key}", f"HostCertificate {key}-cert.pub")
        sshd.known_hosts.write_text(f"@cert-authority {name_of(sshd)} {public(authority)}\n")
        return sshd

    def test_paramiko_refuses_and_names_the_back_end_that_can(
        self, sshd: Sshd, open_transport: Open
    ):
        with pytest.raises(SshConfigRefused, match="certificate authority") as caught:
            open_transport(sshd.endpoint(), Backend.PARAMIKO)

        assert "--transport openssh" in caught.value.next_step
        assert "Accepted" not in sshd.log

    def test_openssh_checks_the_certificate(self, sshd: Sshd, open_transport: Open):
        assert works(open_transport(sshd.endpoint(), Backend.OPENSSH))


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

        assert "--transport openssh" in caught.value.next_step

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
