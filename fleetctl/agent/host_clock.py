"""The host's clocks: one for people, one that nobody can set."""

from __future__ import annotations

import time
from pathlib import Path

from fleetctl.clock import SystemClock


class HostClock(SystemClock):
    """The machine's clock, with the time since boot that deadlines of leases are kept in."""

    def boottime_s(self) -> float:
        """Return seconds since boot, suspended ones included; setting the clock moves nothing."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        """Return what changes at each boot; empty where the kernel does not tell."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""
