"""A controller that applies, renews and waits to be killed; run as a process of its own.

python -m benchmarks.faults.controller LAB HOST LEASE_S
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.faults.lab_site import lab_site
from fleetctl.host.agent_client import new_id


def main() -> None:
    """Apply the site's plan, say so, and renew for ever."""
    directory, name, lease_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    site = lab_site(directory, name)
    site.originals = {}
    site.remember()
    lease = site.lease(lease_s)
    agent = site.agent()
    print("ready", flush=True)
    sys.stdin.readline()
    agent.apply(lease, new_id(), site.steps(), site.contents())
    print("applied", flush=True)
    while True:
        agent.renew(lease.id, length_s=lease_s)
        time.sleep(lease_s / 4)


if __name__ == "__main__":
    main()
