"""Which back end works for which kind."""

from __future__ import annotations

from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.backend import HostBackend
from fleetctl.lab.cgroup import find_cgroup2
from fleetctl.lab.namespaces import NamespaceHosts
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.processes import ProcessHosts
from fleetctl.lab.record import Kind, LabRecord


def backend_for(directory: Path, record: LabRecord, clock: Clock) -> HostBackend:
    """Return the back end of a lab.

    Raises:
        LabError: the machine has lost what the lab's hosts are made of.
    """
    paths = LabPaths(directory)
    match record.kind:
        case Kind.PROCESSES:
            return ProcessHosts(paths, record, clock)
        case Kind.NAMESPACES:
            cgroup_root = find_cgroup2()
            if cgroup_root is None:
                raise LabError(
                    "cannot reach the lab's hosts",
                    why="cgroup v2 is no longer mounted on this machine",
                    next_step="mount -t cgroup2 cgroup2 /sys/fs/cgroup",
                )
            return NamespaceHosts(paths, record, clock, cgroup_root)
