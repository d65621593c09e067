"""Programs of this machine that the lab runs, with errors people can act on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fleetctl.errors import LabError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
    "umount": "mount",
}


def find_program(name: str) -> str | None:
    """Return the absolute path of a program, also from the sbin directories, or None."""
    return shutil.which(name) or shutil.which(name, path=SYSTEM_PATH)


def require_program(name: str) -> str:
    """Return the absolute path of a program.

    Raises:
        LabError: it is not installed; names the Debian package.
    """
    found = find_program(name)
    if found is None:
        raise LabError(
            f"the lab needs the program `{name}`",
            why="it is not installed on this machine",
            next_step=f"apt-get install {PACKAGES.get(name, name)}",
        )
    return str(Path(found).absolute())


def run(argv: Sequence[str], *, deadline_s: float = 60.0) -> str:
    """Run a program to its end and return what it printed.

    Raises:
        LabError: it is missing, failed or outlived its deadline; says what it printed.
    """
    command = [require_program(argv[0]), *argv[1:]]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise _failed(argv, f"no end after {deadline_s:g} s") from late
    if done.returncode != 0:
        raise _failed(argv, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _failed(argv: Sequence[str], why: str) -> LabError:
    return LabError(
        f"a command of the lab failed: {' '.join(argv)}",
        why=why,
        next_step="fleetctl lab down, then fleetctl lab up",
    )
