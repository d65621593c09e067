"""A fleet on this machine: hosts with a real sshd, and real systemd where permitted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.lab.lab import Lab
    from fleetctl.lab.record import HostRecord, HostState, Kind
    from fleetctl.lab.status import HostStatus, LabStatus

__all__ = ["HostRecord", "HostState", "HostStatus", "Kind", "Lab", "LabStatus"]
_HOME = {"Lab": "lab", "HostStatus": "status", "LabStatus": "status"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used.

    Each `systemctl` on a host of processes is a Python program of this package: it would be
    twice as slow if it brought the whole lab with it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'record')}")
    return getattr(module, name)
