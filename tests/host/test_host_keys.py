"""Nothing is said to a host that has not proven itself, and each failure has its own help."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fleetctl.errors import HostKeyRejected, SshConfigRefused
from fleetctl.host.endpoint import Backend
from fleetctl.host.known_hosts import parse
from tests.host.logins import Open, name_of, public, works
from tests.host.sshd import Sshd, Sshds, make_key


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

        assert '`transport = "openssh"` in the inventory' in caught.value.next_step
        assert "Accepted" not in sshd.log

    def test_openssh_checks_the_certificate(self, sshd: Sshd, open_transport: Open):
        assert works(open_transport(sshd.endpoint(), Backend.OPENSSH))
