"""Hosts that are plain directories on this machine: quick, and needing no privileges."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.faults.site import Site
from fleetctl.clock import SystemClock
from fleetctl.host.local import connect_local


def plain_site(root: Path, name: str) -> Site:
    """Make a directory host below `root`."""
    tree = root / name / "tree"
    (tree / "serve").mkdir(parents=True)
    module = tree / "serve" / "indexer.py"
    module.write_bytes(b"NAME = 'transient'\n")
    module.chmod(0o640)
    os.setxattr(module, "user.note", b"kept")
    os.utime(module, ns=(1, 1_700_000_000_123_456_789))
    script = tree / "serve.sh"
    script.write_bytes(b"#!/bin/bash\nexport FLAG=0\n")
    script.chmod(0o755)
    (tree / "obsolete.conf").write_bytes(b"obsolete\n")
    site = Site(
        name=name,
        connect=lambda: connect_local(name, clock=SystemClock()),
        tree=str(tree),
        state=str(root / name / "state"),
        unit="",
        python=str(Path(sys.executable).resolve()),
        module="serve/indexer.py",
        script="serve.sh",
    )
    site.agent().status()
    site.remember()
    return site
