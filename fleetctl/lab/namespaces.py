"""Hosts of namespaces: an overlay over this machine's root, an address, systemd as PID 1."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.cgroup import ControlGroup
from fleetctl.lab.commands import require_program, run
from fleetctl.lab.files import make_directory, remove_directory, tail_of
from fleetctl.lab.keys import known_hosts_line
from fleetctl.lab.machine import (
    links_named,
    mount_points_below,
    mounts,
    pids_matching,
)
from fleetctl.lab.network import LabNetwork, remove_links
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.record import HostRecord, HostState, LabRecord, Phase, Wanted
from fleetctl.lab.root_disk import Identity, write_root_disk
from fleetctl.lab.serving_tree import service_of

INIT = Path(__file__).with_name("namespace_host.sh")
SYSTEMD_PROGRAMS = ("/lib/systemd/systemd", "/usr/lib/systemd/systemd")
UNSHARE = ("--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child")
START_DEADLINE_S = 120.0
SERVICE_PORT = 30002
TREE = "/srv/dsv4"
# hosts see their own instead of the machine's
HIDDEN = ("/root", "/home", "/tmp", "/run", "/dev", "/var/log")  # noqa: S108 - a list, not a use


def systemd_program() -> str | None:
    """Return the path of systemd, or None where it is not installed."""
    return next((path for path in SYSTEMD_PROGRAMS if os.access(path, os.X_OK)), None)


def shared_paths(python: str) -> list[str]:
    """Return directories of the interpreter that a host would not see without help.

    It would not see what lies under a hidden directory or on another file system than `/`.
    """
    prefixes = [str(Path(python).parent.parent), sys.prefix, sys.base_prefix]
    resolved = [os.path.realpath(prefix) for prefix in prefixes]
    wanted = dict.fromkeys(path for path in [*prefixes, *resolved] if path not in {"/", "/usr"})
    points = [mount.point for mount in mounts() if mount.point != "/"]
    return [path for path in wanted if _is_below(path, [*HIDDEN, *points])]


def _is_below(path: str, directories: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{directory}/") for directory in directories)


@dataclass(frozen=True)
class NamespaceHosts:
    """The back end for `Kind.NAMESPACES`.

    Attributes:
        cgroup_root: where cgroup v2 is mounted.
    """

    paths: LabPaths
    record: LabRecord
    clock: Clock
    cgroup_root: Path

    @property
    def network(self) -> LabNetwork:
        """The links of the lab."""
        return LabNetwork(self.record.token, self.record.network)

    def lab_group(self) -> ControlGroup:
        """Return the control group of the whole lab."""
        return ControlGroup(self.cgroup_root / f"fleetctl-lab-{self.record.token}")

    def group(self, host: HostRecord) -> ControlGroup:
        """Return the control group of one host."""
        return ControlGroup(self.lab_group().path / host.name)

    def disk(self, host: HostRecord) -> Path:
        """Return the directory that holds what the host wrote, as this machine sees it."""
        return self.paths.host(host.name) / "disk" / "upper"

    def plan_host(
        self, index: int, others: Sequence[HostRecord], disk_bytes: int | None
    ) -> HostRecord:
        """Return the record of a host to be made; its address follows from its index."""
        return HostRecord(
            name=f"lab-{index}",
            index=index,
            address=self.network.address(index),
            port=22,
            service_port=SERVICE_PORT,
            tree=TREE,
            disk_bytes=disk_bytes,
            disk_is_tmpfs=self.record.disk_on_tmpfs or disk_bytes is not None,
        )

    def prepare(self) -> None:
        """Create what all hosts of the lab share; keeps what is there.

        The caller holds `CHOICE_LOCK`.
        """
        self.network.create_bridge(self.paths.directory)
        self.lab_group().create()

    def make(self, host: HostRecord, tree_source: Path, authorized_key: str) -> None:
        """Write the disk of a new host."""
        directory = self.paths.host(host.name)
        make_directory(directory)
        for name in ("disk", "root"):
            make_directory(directory / name)
        self._mount_disk(host)
        make_directory(directory / "disk" / "work")
        identity = Identity(host.name, host.address, authorized_key)
        service = service_of(self.record, host)
        write_root_disk(self.disk(host), identity, service, tree_source)
        shared = "".join(f"{path}\n" for path in shared_paths(self.record.python))
        (directory / "shared_paths").write_text(shared, encoding="utf-8")

    def _mount_disk(self, host: HostRecord) -> None:
        point = str(self.paths.host(host.name) / "disk")
        if not host.disk_is_tmpfs or point in mount_points_below(self.paths.directory):
            return
        size = "" if host.disk_bytes is None else f",size={host.disk_bytes}"
        run(["mount", "-t", "tmpfs", "-o", f"mode=755{size}", "fleetctl-lab", point])

    def boot(self, host: HostRecord) -> None:
        """Start the host's first process and give it its network.

        Raises:
            LabError: it ended before it had a network; says what it printed.
        """
        group = self.group(host)
        group.create()
        self._mount_disk(host)
        with self.paths.console(host.name).open("ab") as console:
            starter = subprocess.Popen(
                self._boot_command(host, group),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                bufsize=0,
            )
            with starter:
                self._hand_over_network(host, starter)
        if host.is_cut:
            self.cut(host)

    def _boot_command(self, host: HostRecord, group: ControlGroup) -> list[str]:
        systemd = systemd_program()
        if systemd is None:
            raise LabError(
                "a host of namespaces needs systemd",
                why="it is not installed on this machine",
                next_step="apt-get install systemd, or fleetctl lab up --kind processes",
            )
        # setsid forks, so that the host is nobody's child; the shell joins the group and says
        # which process it is before it becomes unshare
        join = 'echo 0 >"$1" && echo $$ && shift && exec "$@"'
        own = [str(self.paths.host(host.name)), str(self.paths.directory), host.name]
        init = ["sh", str(INIT), *own, host.address, self.network.gateway, systemd]
        start = ["sh", "-c", join, "join", str(group.joining_file), require_program("unshare")]
        return [require_program("setsid"), "--fork", *start, *UNSHARE, *init]

    def _hand_over_network(self, host: HostRecord, starter: subprocess.Popen[bytes]) -> None:
        stdin, stdout = _pipes(starter)
        pid = self._heard(host, stdout)
        self._heard(host, stdout, "unshared")
        self.network.plug(host.index, int(pid))
        stdin.write(b"plugged\n")
        stdin.flush()
        self._heard(host, stdout, "networked")

    def _heard(self, host: HostRecord, stdout: IO[bytes], expected: str | None = None) -> str:
        ready, _, _ = select.select([stdout], [], [], START_DEADLINE_S)
        line = stdout.readline().decode().strip() if ready else ""
        if not line or (expected is not None and line != expected):
            raise LabError(
                f"{host.name} did not start",
                why=f"it went no further; its console says:\n{self.last_words(host)}",
                next_step="fleetctl lab down, then fleetctl lab up",
            )
        return line

    def kill(self, host: HostRecord) -> None:
        """Cut the host from power: every process of it ends at once."""
        self.group(host).kill(self.clock)
        for pid in _starters(self.group(host).joining_file):
            _kill_starter(pid)
        self.network.unplug(host.index)
        self.group(host).remove(self.clock)

    def check_can_be_cut(self, host: HostRecord) -> None:
        """Accept: every host of namespaces has a cable."""

    def cut(self, host: HostRecord) -> None:
        """Cut the host from the network: connections hang, nothing is refused."""
        self.network.set_link(host.index, "down")

    def heal(self, host: HostRecord) -> None:
        """Connect the host to the network again."""
        self.network.set_link(host.index, "up")

    def discard(self, host: HostRecord) -> None:
        """Remove everything of one host, however far its making came."""
        self.kill(host)
        directory = self.paths.host(host.name)
        for point in mount_points_below(directory):
            run(["umount", point])
        remove_directory(directory)

    def discard_all(self) -> None:
        """Remove everything the lab has on this machine, except the files of its directory."""
        self.lab_group().kill(self.clock)
        for pid in _starters(self.lab_group().path):
            _kill_starter(pid)
        bridge = self.network.bridge
        remove_links([name for name in links_named(bridge) if name != bridge])
        remove_links([bridge])
        self.lab_group().remove(self.clock)
        for point in mount_points_below(self.paths.directory):
            run(["umount", point])

    def state(self, host: HostRecord) -> HostState:
        """Return what can be told about the host without talking to it."""
        if host.phase is Phase.MAKING:
            return HostState.UNMADE
        if not self.group(host).has_processes():
            return HostState.KILLED if host.wanted is Wanted.KILLED else HostState.STOPPED
        return HostState.UP if self.network.is_plugged(host.index) else HostState.CUT

    def known_hosts(self, host: HostRecord) -> str:
        """Return the host's line of known_hosts."""
        key = self.disk(host) / "etc/ssh/ssh_host_ed25519_key.pub"
        return known_hosts_line(host.address, host.port, key.read_text(encoding="ascii"))

    def last_words(self, host: HostRecord) -> str:
        """Return the end of the host's console and journal, for error messages."""
        console = tail_of(self.paths.console(host.name), 10)
        journal = self.disk(host) / "var/log/journal"
        if not journal.is_dir() or shutil.which("journalctl") is None:
            return console
        lines = run(["journalctl", "--directory", str(journal), "-n", "10", "--no-pager", "-q"])
        return f"{console}\n{lines}".strip()


def _pipes(starter: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if starter.stdin is None or starter.stdout is None:
        raise ValueError("the starter needs pipes")
    return starter.stdin, starter.stdout


def _starters(argument: Path) -> set[int]:
    """Return shells that had not joined their control group yet when the controller died."""
    return pids_matching("cmdline", re.compile(rb"\0join\0" + re.escape(bytes(argument))))


def _kill_starter(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
