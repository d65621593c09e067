"""What is measured as one: a single host, or the hosts of a deployment behind one router."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleetctl.errors import InputError
from fleetctl.spec.arms import Arm
from fleetctl.spec.inventory import Host, Inventory
from fleetctl.workflow.edges import Reached


@dataclass(frozen=True)
class Site:
    """Hosts that serve together: an arm is on all of them or on none.

    Attributes:
        hosts: in the order in which they are restarted.
    """

    hosts: tuple[Reached, ...]

    @property
    def name(self) -> str:
        """The host's name, or the names joined."""
        return "+".join(host.name for host in self.hosts)

    @property
    def entry(self) -> Reached:
        """The host through whose connection requests go: the last one started."""
        return self.hosts[-1]

    @property
    def machine(self) -> str:
        """Sites of one machine are never measured at once."""
        return self.entry.host.labels.get("machine", self.name)

    @property
    def address(self) -> tuple[str, int]:
        """Where requests of the whole site go, seen from the entry host."""
        return address_of(self.entry.host.router_url or self.entry.host.service_url)


def address_of(url: str) -> tuple[str, int]:
    """Return address and port of a service URL."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)


def sites_of(hosts: Iterable[Reached]) -> tuple[Site, ...]:
    """Return the sites of a target, in inventory order."""
    groups: dict[str, list[Reached]] = {}
    for host in hosts:
        groups.setdefault(host.host.router_url or f"host {host.name}", []).append(host)
    return tuple(
        Site(tuple(sorted(group, key=lambda host: host.host.restart_order)))
        for group in groups.values()
    )


@dataclass(frozen=True)
class NamedSite:
    """A site as the inventory says it, before anybody has connected.

    Attributes:
        hosts: names, in the order in which they are restarted.
        block: what makes its hosts equal to others: class, GPU, driver and tree version.
        machine: sites of one machine disturb each other.
    """

    hosts: tuple[str, ...]
    block: str
    machine: str

    @property
    def name(self) -> str:
        """The host's name, or the names joined."""
        return "+".join(self.hosts)


EQUAL_BY = ("class", "gpu", "driver", "tree_version")


def named_sites(inventory: Inventory, target: str) -> tuple[NamedSite, ...]:
    """Return the sites of a target in inventory order.

    Raises:
        InputError: nothing has that name.
    """
    groups: dict[str, list[str]] = {}
    for name in inventory.select(target):
        groups.setdefault(inventory.hosts[name].router_url or f"host {name}", []).append(name)
    return tuple(_named(inventory, names) for names in groups.values())


def _named(inventory: Inventory, names: Sequence[str]) -> NamedSite:
    ordered = sorted(names, key=lambda name: inventory.hosts[name].restart_order)
    blocks = [_block(inventory.hosts[name]) for name in ordered]
    machine = inventory.hosts[ordered[-1]].labels.get("machine", "+".join(ordered))
    return NamedSite(tuple(ordered), " + ".join(blocks), machine)


def _block(host: Host) -> str:
    known = [f"{label}={host.labels[label]}" for label in EQUAL_BY if label in host.labels]
    return " ".join(known) or "unlabelled"


def find_site(inventory: Inventory, target: str, name: str) -> NamedSite:
    """Return the site of that name.

    Raises:
        InputError: the target has none.
    """
    sites = {site.name: site for site in named_sites(inventory, target)}
    if name not in sites:
        raise InputError(
            f"{target} has no site called {name}",
            why=f"its sites are {', '.join(sites)}",
            next_step="name one of them",
        )
    return sites[name]


def by_machine(sites: Sequence[Site]) -> tuple[tuple[Site, ...], ...]:
    """Return the sites grouped by machine: hosts of one machine disturb each other's trials."""
    groups: dict[str, list[Site]] = {}
    for site in sites:
        groups.setdefault(site.machine, []).append(site)
    return tuple(tuple(group) for group in groups.values())


def check_layout(inventory: Inventory, site: Site, arms: Sequence[Arm]) -> None:
    """Refuse a change of the cache's layout on some hosts of a deployment only.

    Raises:
        InputError: hosts that exchange cached pages would disagree about their layout.
    """
    changing = [c.patch.source for arm in arms for c in arm.patches if c.patch.layout]
    router = site.entry.host.router_url
    if not changing or router is None:
        return
    named = {host.name for host in site.hosts}
    left_out = [
        name
        for name, host in inventory.hosts.items()
        if host.router_url == router and name not in named
    ]
    if left_out:
        raise InputError(
            f"{changing[0]} changes the cache layout on a part of the deployment",
            why=f"{', '.join(left_out)} behind the same router would keep the old layout, "
            "and pages are exchanged by raw bytes",
            next_step="name a target with every host of the deployment",
        )
