"""The network of a lab of namespaces: a bridge on this machine, a veth pair for each host."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import LabError
from fleetctl.lab.commands import run
from fleetctl.lab.machine import NET, link_alias, link_is_up, links_named

ALIAS_PREFIX = "fleetctl lab "
ALIAS_MAX_CHARS = 250  # the kernel keeps 255
# Held while a subnet is chosen and claimed. /sys/class/net belongs to the network namespace,
# which is exactly the scope in which bridges and addresses must differ, and needs no clean-up.
CHOICE_LOCK = NET


@dataclass(frozen=True)
class LabNetwork:
    """The links of one lab, by the names they have on this machine.

    Attributes:
        network: first three octets, such as `10.231.0`.
    """

    token: str
    network: str

    @property
    def bridge(self) -> str:
        """Name of the bridge."""
        return f"fl{self.token}"

    def veth(self, index: int) -> str:
        """Name of this machine's end of a host's cable."""
        return f"fl{self.token}-{index}"

    @property
    def gateway(self) -> str:
        """Address of this machine in the lab."""
        return f"{self.network}.1"

    def address(self, index: int) -> str:
        """Address of a host."""
        return f"{self.network}.{index + 1}"

    def mac(self, index: int) -> str:
        """Hardware address of a host: the same after a reboot, so that neighbours find it."""
        octets = [int(part) for part in self.address(index).split(".")]
        return ":".join(["02", "fc", *(f"{octet:02x}" for octet in octets)])

    def create_bridge(self, directory: Path) -> None:
        """Create the bridge if it isn't there and mark it with the lab's directory.

        Raises:
            LabError: the bridge is gone, and somebody else has its network now.
        """
        if not (NET / self.bridge).exists():
            self._check_network_is_free()
            run(["ip", "link", "add", self.bridge, "type", "bridge", "forward_delay", "0"])
        run(["ip", "link", "set", self.bridge, "alias", alias_of(directory), "up"])
        run(["ip", "address", "replace", f"{self.gateway}/24", "dev", self.bridge])

    def _check_network_is_free(self) -> None:
        own = ipaddress.IPv4Network(f"{self.network}.0/24")
        if any(own.overlaps(network) for network in _networks_in_use()):
            raise LabError(
                f"the lab's network {own} is in use",
                why="the lab's bridge is gone, and something else has these addresses now",
                next_step="fleetctl lab down, then fleetctl lab up",
            )

    def plug(self, index: int, pid: int) -> None:
        """Give the network namespace of process `pid` a cable to the bridge, as its eth0."""
        veth = self.veth(index)
        self.unplug(index)
        peer = ["peer", "name", "eth0", "address", self.mac(index), "netns", str(pid)]
        run(["ip", "link", "add", veth, "type", "veth", *peer])
        run(["ip", "link", "set", veth, "master", self.bridge, "up"])

    def unplug(self, index: int) -> None:
        """Remove a host's cable; nothing happens if there is none."""
        remove_links([self.veth(index)])

    def set_link(self, index: int, state: str) -> None:
        """Set this machine's end of a host's cable `up` or `down`."""
        run(["ip", "link", "set", self.veth(index), state])

    def is_plugged(self, index: int) -> bool:
        """Tell whether the host's cable exists and is up."""
        return link_is_up(self.veth(index))


def alias_of(directory: Path) -> str:
    """Return the text by which the bridge of a lab is found when its record is lost."""
    return f"{ALIAS_PREFIX}{directory}"[:ALIAS_MAX_CHARS]


def tokens_of(directory: Path) -> list[str]:
    """Return the tokens of bridges on this machine that belong to a lab in `directory`."""
    alias = alias_of(directory)
    return [name.removeprefix("fl") for name in links_named("fl") if link_alias(name) == alias]


def remove_links(names: Iterable[str]) -> None:
    """Remove links that exist; those that vanish meanwhile are no error."""
    for name in names:
        if not (NET / name).exists():
            continue
        try:
            run(["ip", "link", "del", name])
        except LabError:
            if (NET / name).exists():
                raise


def free_network() -> str:
    """Return the first /24 of 10.231 to 10.239 that nothing on this machine uses.

    The caller holds `CHOICE_LOCK` until the bridge has its address.

    Raises:
        LabError: all are taken.
    """
    taken = list(_networks_in_use())
    for candidate in _candidates():
        if not any(candidate.overlaps(network) for network in taken):
            return str(candidate.network_address).rpartition(".")[0]
    raise LabError(
        "no free network for another lab",
        why="every /24 of 10.231.0.0 to 10.239.255.0 is in use on this machine",
        next_step="end labs that are not needed: fleetctl lab down --dir DIR",
    )


def _candidates() -> Iterator[ipaddress.IPv4Network]:
    for second in range(231, 240):
        yield from ipaddress.IPv4Network(f"10.{second}.0.0/16").subnets(new_prefix=24)


def _networks_in_use() -> Iterator[ipaddress.IPv4Network]:
    """Yield networks of addresses and routes; the wide ones of a VPN lose to a /24 anyway."""
    for link in json.loads(run(["ip", "-json", "-4", "address", "show"])):
        for address in link.get("addr_info", ()):
            yield ipaddress.IPv4Network(f"{address['local']}/{address['prefixlen']}", strict=False)
    for route in json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]"):
        if route["dst"] != "default":
            network = ipaddress.IPv4Network(route["dst"], strict=False)
            if network.prefixlen >= 16:
                yield network
