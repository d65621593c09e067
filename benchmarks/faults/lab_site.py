"""Lab hosts with their own systemd and sshd as sites; what one does to them from outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.site import Site
from fleetctl.clock import SystemClock
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.host.transport import Transport
from fleetctl.lab import Lab

UNIT = "sglang-dsv4-decode.service"
STANDIN = Path(__file__).parents[2] / "tests" / "lab" / "standin"
GATE = HandshakeGate()


@dataclass
class LabSite(Site):
    """A lab host: can be cut from power and network.

    Attributes:
        directory: of its lab.
        small: its disk is small enough to be filled.
    """

    directory: Path = Path()
    small: bool = False

    @property
    def lab(self) -> Lab:
        """Return its lab."""
        return Lab.at(self.directory)

    @property
    def journals(self) -> Path:
        """Return where this machine sees the host's journals."""
        return self.lab.disk(self.name) / "var/lib/fleetctl/transactions"


def open_lab(directory: Path, hosts: int, *, disk_bytes: int | None = None) -> list[LabSite]:
    """Boot a lab and return its hosts as sites."""
    lab = Lab.at(directory)
    lab.up(hosts, tree_source=STANDIN, disk_bytes=disk_bytes)
    sites = [lab_site(directory, name, small=disk_bytes is not None) for name in names_of(lab)]
    for site in sites:
        site.agent().status()
        site.remember()
        warm_up(site)
    return sites


def names_of(lab: Lab) -> list[str]:
    """Return the names of a lab's hosts."""
    return [host.name for host in lab.hosts]


def warm_up(site: Site) -> None:
    """Restart the unit once, so that its bytecode is written before anything is compared."""
    site.shell(f"systemctl restart {site.unit}; sleep 1")


def lab_site(directory: Path, name: str, *, small: bool = False) -> LabSite:
    """Return a running host of a lab as a site."""
    lab = Lab.at(directory)
    host = lab.host(name)

    def dial() -> Transport:
        endpoint = Endpoint(
            name=name,
            address=host.address,
            user="root",
            port=host.port,
            identity_files=(lab.paths.identity,),
            known_hosts_files=(lab.paths.known_hosts,),
            connect_deadline_s=10.0,
        )
        return connect(endpoint, backend=Backend.PARAMIKO, gate=GATE, clock=SystemClock())

    return LabSite(
        name=name,
        connect=dial,
        tree=host.tree,
        state="/var/lib/fleetctl",
        unit=UNIT,
        python="/usr/bin/python3",
        module="python/serve/dsv4/indexer.py",
        script=Path(host.serve_script).name,
        directory=directory,
        small=small,
    )
