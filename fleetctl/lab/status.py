"""What a lab is like now."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.lab.record import CANNOT_SHOW, GPU, UNIT, HostRecord, HostState, Kind


@dataclass(frozen=True)
class HostStatus:
    """One host, as seen from this machine.

    Attributes:
        unit_state: what systemctl on the host says of the decode service, or `unknown`.
    """

    record: HostRecord
    state: HostState
    unit_state: str


@dataclass(frozen=True)
class LabStatus:
    """A lab as a whole.

    Attributes:
        kind: None where there is no lab.
        why_this_kind: why hosts are not made of namespaces; empty if they are.
        stale_hosts: whose serving tree was copied from another version of the payload.
        gpu: name of the GPU that the hosts share with this machine; empty if they have none.
    """

    directory: Path
    kind: Kind | None
    hosts: tuple[HostStatus, ...] = ()
    inventory: Path | None = None
    why_this_kind: str = ""
    stale_hosts: tuple[str, ...] = ()
    gpu: str = ""

    @property
    def cannot_show(self) -> tuple[str, ...]:
        """What real hosts do and hosts of this kind can't."""
        missing = CANNOT_SHOW[self.kind] if self.kind else ()
        return tuple(thing for thing in missing if not (self.gpu and thing == GPU))

    def as_document(self) -> dict[str, Any]:
        """Return the status as plain data, for JSON."""
        return {
            "directory": str(self.directory),
            "kind": str(self.kind) if self.kind else None,
            "why_this_kind": self.why_this_kind,
            "cannot_show": list(self.cannot_show),
            "inventory": str(self.inventory) if self.inventory else None,
            "hosts": [_host_document(host) for host in self.hosts],
            "stale_hosts": list(self.stale_hosts),
        }


def _host_document(host: HostStatus) -> dict[str, Any]:
    return {
        "name": host.record.name,
        "address": host.record.address,
        "port": host.record.port,
        "state": str(host.state),
        "unit": UNIT,
        "unit_state": host.unit_state,
        "tree": host.record.tree,
        "service_port": host.record.service_port,
        "disk_bytes": host.record.disk_bytes,
    }
