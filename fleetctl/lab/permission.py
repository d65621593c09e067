"""Which kind of hosts this machine permits, found out by trying once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import LabError
from fleetctl.lab.cgroup import find_cgroup2
from fleetctl.lab.commands import find_program, require_program
from fleetctl.lab.namespaces import UNSHARE, systemd_program
from fleetctl.lab.paths import PROBE_PREFIX
from fleetctl.lab.record import Kind

PROBE = Path(__file__).with_name("namespace_probe.sh")
PROBE_DEADLINE_S = 120.0


@dataclass(frozen=True)
class Permitted:
    """What this machine permits.

    Attributes:
        why_not_namespaces: empty if hosts of namespaces are possible.
        disk_on_tmpfs: their disks can't be in the lab's directory.
    """

    why_not_namespaces: str
    disk_on_tmpfs: bool = False

    @property
    def kind(self) -> Kind:
        """The better of the kinds that are possible."""
        return Kind.PROCESSES if self.why_not_namespaces else Kind.NAMESPACES


def check_machine() -> None:
    """Refuse machines on which no kind of host is possible.

    Raises:
        LabError: not Linux, or no OpenSSH.
    """
    if sys.platform != "linux":
        raise LabError(
            "a lab needs Linux",
            why=f"this machine runs {sys.platform}: no namespaces, no /proc",
            next_step="run fleetctl lab in a Linux virtual machine or container",
        )
    for program in ("sshd", "ssh", "ssh-keygen"):
        require_program(program)


def what_is_permitted(directory: Path) -> Permitted:
    """Try a host of namespaces with its disk in `directory`; takes about 50 ms."""
    if os.geteuid() != 0:
        return Permitted("not root")
    if systemd_program() is None:
        return Permitted("systemd is not installed (apt-get install systemd)")
    for program in ("ip", "unshare", "setsid", "setpriv"):
        if find_program(program) is None:
            return Permitted(f"the program `{program}` is not installed")
    cgroup = find_cgroup2()
    if cgroup is None:
        return Permitted("cgroup v2 is not mounted")
    problem = _try(directory, cgroup)
    if not problem:
        return Permitted("")
    # a container's own root is often an overlay, on which no other can write
    problem = _try(directory, cgroup, "tmpfs")
    return Permitted(problem, disk_on_tmpfs=not problem)


def _try(directory: Path, cgroup: Path, *options: str) -> str:
    """Return why a host is not possible; empty if it is."""
    with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=directory) as probe:
        upper = Path(probe, "disk", "upper")
        (upper / "etc").mkdir(parents=True)
        for name in ("disk/work", "root"):
            Path(probe, name).mkdir()
        try:
            os.setxattr(upper / "etc", "trusted.overlay.opaque", b"y")
        except OSError as refused:
            if not options:
                return f"trusted attributes on {directory}: {refused.strerror}"
        unshare = require_program("unshare")
        done = subprocess.run(
            [unshare, *UNSHARE, "sh", str(PROBE), probe, str(cgroup), *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_DEADLINE_S,
            check=False,
        )
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the attempt ended with code {done.returncode}"
