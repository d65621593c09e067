"""The upper layer of a namespace host: what differs from this machine's own root.

Everything installed on the machine is visible below; here its own services, logins, logs and
homes are hidden, and the host's identity, sshd and decode service are put in their place.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.lab.commands import require_program, run
from fleetctl.lab.files import make_directory
from fleetctl.lab.keys import ensure_key
from fleetctl.lab.record import UNIT
from fleetctl.lab.serving_tree import Service, unit_file, write_tree

OPAQUE = b"y"
# these directories start empty: what the machine has there is not the host's
EMPTY_DIRECTORIES = (
    "etc/profile.d",
    "etc/ssh",
    "etc/systemd/journald.conf.d",
    "etc/systemd/system",
    "etc/systemd/system-generators",
    "home",
    "root",
    "var/log",
)
UNIT_DIRECTORIES = (
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
GENERATOR_DIRECTORIES = ("/usr/lib/systemd/system-generators", "/lib/systemd/system-generators")
# of what distributions want at boot, a lab host keeps these; everything else is masked
KEPT_UNITS = frozenset(
    {
        "dbus.service",
        "dbus.socket",
        "systemd-journal-flush.service",
        "systemd-journald-dev-log.socket",
        "systemd-journald.service",
        "systemd-journald.socket",
    }
)
SSH_UNIT = """\
[Unit]
Description=OpenSSH server
After=network.target

[Service]
ExecStart={sshd} -D -e
ExecReload=/bin/kill -HUP $MAINPID
RuntimeDirectory=sshd
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
KillMode=process
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""
JOURNALD_CONFIG = """\
[Journal]
Storage=persistent
ReadKMsg=no
Audit=no
SystemMaxUse=64M
"""


@dataclass(frozen=True)
class Identity:
    """Who a host is.

    Attributes:
        authorized_key: the public line that may log in as root.
    """

    name: str
    address: str
    authorized_key: str


def write_root_disk(upper: Path, identity: Identity, service: Service, tree_source: Path) -> None:
    """Fill an empty upper layer with a host that boots, answers SSH and serves."""
    make_directory(upper)
    for directory in EMPTY_DIRECTORIES:
        _make_opaque(upper / directory)
    _write_identity(upper, identity)
    _write_logins(upper, identity.authorized_key, service.python)
    _write_sshd(upper)
    _write_services(upper, service)
    _hide(upper / "var/lib/fleetctl")
    tree = upper / service.tree.lstrip("/")
    _make_opaque(tree)
    write_tree(tree_source, tree, service)


def _write_identity(upper: Path, identity: Identity) -> None:
    etc = upper / "etc"
    own = f"{identity.address} {identity.name}\n"
    _write(etc / "hostname", f"{identity.name}\n")
    _write(etc / "hosts", f"127.0.0.1 localhost\n::1 localhost\n{own}")
    _write(etc / "machine-id", f"{uuid.uuid4().hex}\n")
    for file in ("fstab", "environment", "profile", "bash.bashrc"):
        _write(etc / file, "")


def _write_logins(upper: Path, authorized_key: str, python: str) -> None:
    users = [user for user in pwd.getpwall() if user.pw_uid != 0]
    lines = ["root:x:0:0:root:/root:/bin/bash"]
    lines += [f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}::{u.pw_dir}:{u.pw_shell}" for u in users]
    _write(upper / "etc/passwd", "\n".join([*lines, ""]))
    names = ["root", *(user.pw_name for user in users)]
    _write(upper / "etc/shadow", "".join(f"{name}:*:20000::::::\n" for name in names), 0o640)
    (upper / "root").chmod(0o700)
    (upper / "root/.ssh").mkdir(mode=0o700)
    _write(upper / "root/.ssh/authorized_keys", f"{authorized_key}\n", 0o600)
    if not any(Path(directory, "python3").exists() for directory in ("/usr/bin", "/usr/local/bin")):
        _link(upper / "usr/local/bin/python3", str(Path(python).resolve()))


def _write_sshd(upper: Path) -> None:
    sshd = require_program("sshd")
    ensure_key(upper / "etc/ssh/ssh_host_ed25519_key", "lab host")
    _write(upper / "etc/ssh/sshd_config", SSHD_CONFIG + sshd_extras(sshd))
    _write(upper / "etc/systemd/system/ssh.service", SSH_UNIT.format(sshd=sshd))


def sshd_extras(sshd: str) -> str:
    """Return settings that only newer sshd know; older ones refuse to start with them."""
    version = re.search(r"OpenSSH_(\d+)\.(\d+)", _sshd_version(sshd))
    if version and (int(version[1]), int(version[2])) >= (9, 8):
        # the lab knocks often and hangs up: that is no attack
        return "PerSourcePenalties no\n"
    return ""


def _sshd_version(sshd: str) -> str:
    ssh = Path(sshd).parent.parent / "bin" / "ssh"
    return run(["sh", "-c", 'exec "$0" -V 2>&1', str(ssh) if ssh.exists() else "ssh"])


def _write_services(upper: Path, service: Service) -> None:
    etc = upper / "etc/systemd"
    _write(etc / "journald.conf.d/lab.conf", JOURNALD_CONFIG)
    _write(etc / "system" / UNIT, unit_file(service))
    for name in ("ssh.service", UNIT):
        _link(etc / "system/multi-user.target.wants" / name, f"/etc/systemd/system/{name}")
    # started when somebody calls it: systemd-run --wait does, a login does not
    _link(etc / "system/multi-user.target.wants/dbus.service", "/dev/null")
    for name in sorted(set(_names_in(UNIT_DIRECTORIES, "*.target.wants/*")) - KEPT_UNITS):
        _link(etc / "system" / name, "/dev/null")
    for name in sorted(set(_names_in(GENERATOR_DIRECTORIES, "*"))):
        _link(etc / "system-generators" / name, "/dev/null")


def _names_in(directories: tuple[str, ...], pattern: str) -> Iterator[str]:
    for directory in directories:
        yield from (path.name for path in Path(directory).glob(pattern))


def _make_opaque(directory: Path) -> None:
    make_directory(directory)
    os.setxattr(directory, "trusted.overlay.opaque", OPAQUE)


def _hide(path: Path) -> None:
    """Make the host see nothing at `path`, whatever the machine has there."""
    make_directory(path.parent)
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    make_directory(path.parent)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _link(path: Path, target: str) -> None:
    make_directory(path.parent)
    path.symlink_to(target)
