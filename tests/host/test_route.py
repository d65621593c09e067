"""The way to a host: the same hops in the same order as OpenSSH takes, by real servers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import HostKeyRejected, HostUnreachable, SshConfigRefused
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.route import refuse_beyond_paramiko, route_to
from fleetctl.host.shell import ShellTransport
from tests.host.ports import silent_port
from tests.host.sshd import Sshd, Sshds

Open = Callable[[Endpoint, Backend], ShellTransport]

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh on this machine")


def endpoint(config: Path, **changes: object) -> Endpoint:
    return Endpoint(name="gpu-1", address="target", ssh_config=config, **changes)  # type: ignore[arg-type]


def hops(config: Path, **changes: object) -> list[str]:
    return [host.alias for host in route_to(endpoint(config, **changes))]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["target"]),
        ("Host target\n ProxyJump a\n", ["a", "target"]),
        ("Host target\n ProxyJump a,b,c\n", ["a", "b", "c", "target"]),
        ("Host target\n ProxyJump a\nHost a\n ProxyJump z\n", ["z", "a", "target"]),
        ("Host target\n ProxyJump a,b\nHost a\n ProxyJump z\n", ["z", "a", "b", "target"]),
        # OpenSSH reaches b as told, over a, whatever b's own configuration says
        ("Host target\n ProxyJump a,b\nHost b\n ProxyJump z\n", ["a", "b", "target"]),
        ("Host bastion\n ProxyJump none\nHost *\n ProxyJump bastion\n", ["bastion", "target"]),
        ("Host target\n ProxyJump none\nHost *\n ProxyJump bastion\n", ["target"]),
    ],
)
def test_hops_are_visited_in_openssh_s_order(config: Path, text: str, expected: list[str]):
    config.write_text(text)

    assert hops(config) == expected


def test_hops_of_the_inventory_win_over_the_configuration(config: Path):
    config.write_text("Host target\n ProxyJump a\n")

    assert hops(config, proxy_jump=("x", "y")) == ["x", "y", "target"]
    assert hops(config, proxy_jump=()) == ["target"]


def test_hops_of_the_inventory_win_over_a_proxy_command(config: Path):
    config.write_text("Host target\n ProxyCommand nc %h %p\n")

    route = route_to(endpoint(config, proxy_jump=("x",)))

    assert [host.alias for host in refuse_beyond_paramiko(route)] == ["x", "target"]


def test_a_proxy_command_is_refused_and_the_other_back_end_named(config: Path):
    config.write_text("Host target\n ProxyCommand nc %h %p\n")

    with pytest.raises(SshConfigRefused, match="ProxyCommand") as caught:
        refuse_beyond_paramiko(route_to(endpoint(config)))

    assert '`transport = "openssh"` in the inventory' in caught.value.next_step


@pytest.mark.parametrize(
    "text",
    ["Host *\n ProxyJump bastion\n", "Host target\n ProxyJump a\nHost a\n ProxyJump target\n"],
    ids=["over itself", "in a circle"],
)
def test_a_way_that_never_ends_is_refused(config: Path, text: str):
    config.write_text(text)

    with pytest.raises(SshConfigRefused):
        hops(config)


def lines_for(name: str, sshd: Sshd, *more: str) -> str:
    known = f" UserKnownHostsFile {sshd.known_hosts}\n GlobalKnownHostsFile none\n"
    place = f" HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {sshd.login_key}\n"
    return f"Host {name}\n{place}{known}" + "".join(f" {line}\n" for line in more)


def dialled_ports(sshd: Sshd) -> list[int]:
    """Return where a hop was asked to connect to."""
    return [int(port) for port in re.findall(r"direct_tcpip: .* target .* port (\d+)", sshd.log)]


def test_a_chain_of_real_servers_is_followed_hop_by_hop(
    sshds: Sshds, config: Path, open_transport: Open, ssh_backend: Backend
):
    first, second, target = (sshds.start("LogLevel DEBUG1") for _ in range(3))
    config.write_text(
        lines_for("target", target, "ProxyJump first,second")
        + lines_for("first", first)
        + lines_for("second", second)
    )

    transport = open_transport(endpoint(config), ssh_backend)

    assert transport.run(["echo", "through"], deadline_s=30).stdout == b"through\n"
    assert dialled_ports(first) == [second.port]
    assert dialled_ports(second) == [target.port]
    assert dialled_ports(target) == []


def test_an_unknown_key_on_the_way_is_refused_before_the_login(
    sshds: Sshds, config: Path, open_transport: Open, ssh_backend: Backend
):
    hop, target = sshds.start(), sshds.start()
    hop.known_hosts.write_text("")
    config.write_text(lines_for("target", target, "ProxyJump hop") + lines_for("hop", hop))

    with pytest.raises(HostKeyRejected, match="not known") as caught:
        open_transport(endpoint(config), ssh_backend)

    assert "gpu-1" in caught.value.what
    assert "Accepted" not in hop.log
    assert "Accepted" not in target.log


def test_a_dead_host_behind_a_hop_is_named(
    sshds: Sshds, config: Path, open_transport: Open, ssh_backend: Backend
):
    hop, target = sshds.start(), sshds.start()
    config.write_text(lines_for("target", target, "ProxyJump hop") + lines_for("hop", hop))
    target.stop()

    with pytest.raises(HostUnreachable, match=r"gpu-1|target"):
        open_transport(endpoint(config, connect_deadline_s=3), ssh_backend)


def test_keys_and_known_hosts_of_the_inventory_hold_on_every_hop(
    sshds: Sshds, config: Path, open_transport: Open, ssh_backend: Backend, tmp_path: Path
):
    hop, target = sshds.start(), sshds.start()
    known = tmp_path / "known"
    known.write_text(hop.known_hosts.read_text() + target.known_hosts.read_text())
    config.write_text("")

    transport = open_transport(
        target.endpoint(
            proxy_jump=(f"127.0.0.1:{hop.port}",), known_hosts_files=(known,), ssh_config=config
        ),
        ssh_backend,
    )

    assert transport.run(["echo", "through"], deadline_s=30).stdout == b"through\n"


def test_a_hop_that_forbids_forwarding_is_said(
    sshds: Sshds, config: Path, open_transport: Open, ssh_backend: Backend
):
    hop, target = sshds.start("AllowTcpForwarding no"), sshds.start()
    config.write_text(lines_for("target", target, "ProxyJump hop") + lines_for("hop", hop))

    with pytest.raises(HostUnreachable):
        open_transport(endpoint(config, connect_deadline_s=3), ssh_backend)


def test_a_free_port_is_not_a_server(open_transport: Open, ssh_backend: Backend, config: Path):
    config.write_text("")
    with silent_port() as silent:
        port = silent.getsockname()[1]
        nobody = Endpoint(name="gpu-9", address="127.0.0.1", port=port, ssh_config=config)

        with pytest.raises(HostUnreachable, match="cannot reach gpu-9") as caught:
            open_transport(nobody, ssh_backend)

    assert caught.value.next_step
