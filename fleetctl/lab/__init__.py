"""A fleet on this machine: hosts with a real sshd, and real systemd where permitted."""

from fleetctl.lab.lab import Lab
from fleetctl.lab.record import HostRecord, HostState, Kind
from fleetctl.lab.status import HostStatus, LabStatus

__all__ = ["HostRecord", "HostState", "HostStatus", "Kind", "Lab", "LabStatus"]
