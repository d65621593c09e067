"""The ssh command line to a lab host: what anybody could type from the lab's inventory."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from fleetctl.lab.commands import require_program
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.record import HostRecord, LabRecord

UNKNOWN = "unknown"


def ssh_argv(
    paths: LabPaths, record: LabRecord, host: HostRecord, command: Sequence[str] = ()
) -> list[str]:
    """Return an ssh command with strict host keys and nothing of the user's own configuration."""
    options = {
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": f'"{paths.known_hosts}"',
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "LogLevel": "ERROR",
    }
    argv = [require_program("ssh"), "-F", "/dev/null", "-i", str(paths.identity)]
    for name, value in options.items():
        argv += ["-o", f"{name}={value}"]
    return [*argv, "-p", str(host.port), f"{record.user}@{host.address}", *command]


def unit_state(argv: Sequence[str], *, deadline_s: float) -> str:
    """Return what `systemctl is-active` says on the host; `unknown` if it can't be asked."""
    try:
        done = subprocess.run(
            [argv[0], "-o", "BatchMode=yes", *argv[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
