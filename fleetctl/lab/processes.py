"""Hosts made of processes: an sshd on a port of its own, a systemctl in a directory of its own.

The fallback where namespaces are not permitted. Every process of a host descends from the
host's first process, which adopts orphans, or carries the host's directory in its environment.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.commands import SYSTEM_PATH, require_program
from fleetctl.lab.files import make_directory, remove_directory, tail_of
from fleetctl.lab.keys import ensure_key, known_hosts_line
from fleetctl.lab.machine import descendants, pids_matching, processes
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.process_systemctl import BOOT
from fleetctl.lab.record import UNIT, HostRecord, HostState, LabRecord, Phase, Wanted
from fleetctl.lab.root_disk import sshd_extras
from fleetctl.lab.serving_tree import service_of, unit_file, write_tree

ADDRESS = "127.0.0.1"
MARK = "FLEETCTL_LAB_HOST"
PORTS = range(10000, 32000)  # below the ports that the kernel gives to clients
DEATH_DEADLINE_S = 30.0
POLL_S = 0.01
PRIVSEP = Path("/run/sshd")  # compiled into sshd, which needs it when root runs it
PRIVSEP_MARK = ".made-by-fleetctl-lab"
VOLATILE = ("run", "tmp")  # empty after every boot
DIRECTORIES = ("bin", "etc/systemd/system", "etc/ssh", "home", "var/lib", "var/log/journal")
WRAPPER = """\
#!/bin/sh
exec {python} -I -c 'import sys
sys.path.insert(0, sys.argv.pop(1))
from fleetctl.lab.{module} import main
sys.exit(main(sys.argv[1:]))' {packages} {host_dir} "$@"
"""
# what would act on the machine, not on the host
REFUSED = ("halt", "poweroff", "reboot", "shutdown", "systemd-run")
REFUSAL = """\
#!/bin/sh
echo "$(basename "$0"): not on a host made of processes" >&2
exit 1
"""
SSH_UNIT = """\
[Unit]
Description=OpenSSH server

[Service]
ExecStart={sshd} -D -e -f {host_dir}/etc/ssh/sshd_config
ExecStop=/bin/kill -TERM $MAINPID
KillMode=process
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
SSHD_CONFIG = """\
ListenAddress {address}
Port {port}
HostKey {host_dir}/etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile {host_dir}/etc/ssh/authorized_keys
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
SetEnv {environment}
"""


def _stand_still(pids: set[int]) -> bool:
    """Say whether none of these processes can start another before it is told to go on."""
    known = processes()
    return all(known[pid].is_still for pid in pids if pid in known)


def pids_of_lab(directory: Path) -> set[int]:
    """Return the processes of every host of the lab in `directory`."""
    return _pids_in(re.escape(bytes(LabPaths(directory).hosts)) + rb"/[^/\0]+")


def _pids_in(host_dir: bytes) -> set[int]:
    """Return the processes of hosts whose directory matches a pattern.

    sshd writes its title over its environment, so that it is known by the title alone when the
    first process, from which it descends, is gone.
    """
    titles = re.compile(rb"^sshd: .*" + host_dir + rb"/etc/ssh/sshd_config ")
    marked = re.compile(MARK.encode() + rb"=" + host_dir + rb"\0")
    by_command = _first_processes(host_dir) | pids_matching("cmdline", titles)
    roots = by_command | pids_matching("environ", marked)
    return descendants(roots, processes()) - {os.getpid()}


def _first_processes(host_dir: bytes) -> set[int]:
    """Return the first processes of hosts whose directory matches a pattern."""
    return pids_matching("cmdline", re.compile(rb"\0" + host_dir + rb"\0" + BOOT.encode() + rb"\0"))


@dataclass(frozen=True)
class ProcessHosts:
    """The back end for `Kind.PROCESSES`."""

    paths: LabPaths
    record: LabRecord
    clock: Clock

    def disk(self, host: HostRecord) -> Path:
        """Return the directory of the host, which is all it has."""
        return self.paths.host(host.name)

    def plan_host(
        self, index: int, others: Sequence[HostRecord], disk_bytes: int | None
    ) -> HostRecord:
        """Return the record of a host to be made, with two free ports.

        Raises:
            LabError: a disk of its own was asked for.
        """
        if disk_bytes is not None:
            raise _cannot("have a disk of its own", "it shares this machine's file system")
        name = f"lab-{index}"
        taken = {port for host in others for port in (host.port, host.service_port)}
        port, service_port = _free_ports(2, taken)
        return HostRecord(
            name=name,
            index=index,
            address=ADDRESS,
            port=port,
            service_port=service_port,
            tree=f"{self.paths.host(name)}/srv/dsv4",
        )

    def prepare(self) -> None:
        """Make the directory without which sshd refuses to run as root."""
        if os.geteuid() == 0 and not PRIVSEP.exists():
            make_directory(PRIVSEP)
            (PRIVSEP / PRIVSEP_MARK).touch()

    def make(self, host: HostRecord, tree_source: Path, authorized_key: str) -> None:
        """Write the directories, programs, units and serving tree of a new host."""
        host_dir = self.paths.host(host.name)
        for name in (*DIRECTORIES, *VOLATILE):
            make_directory(host_dir / name)
        self._write_programs(host_dir)
        self._write_sshd(host, authorized_key)
        service = service_of(self.record, host)
        write_tree(tree_source, Path(host.tree), service)
        units = host_dir / "etc/systemd/system"
        ssh_unit = SSH_UNIT.format(sshd=require_program("sshd"), host_dir=host_dir)
        make_directory(units / "multi-user.target.wants")
        for name, text in (("ssh.service", ssh_unit), (UNIT, unit_file(service))):
            (units / name).write_text(text, encoding="utf-8")
            (units / "multi-user.target.wants" / name).symlink_to(units / name)

    def _write_programs(self, host_dir: Path) -> None:
        packages = Path(__file__).resolve().parents[2]
        names = {"python": sys.executable, "packages": str(packages), "host_dir": str(host_dir)}
        quoted = {name: shlex.quote(value) for name, value in names.items()}
        programs = dict.fromkeys(REFUSED, REFUSAL)
        for program in ("systemctl", "journalctl"):
            programs[program] = WRAPPER.format(module=f"process_{program}", **quoted)
        for program, text in programs.items():
            (host_dir / "bin" / program).write_text(text, encoding="utf-8")
            (host_dir / "bin" / program).chmod(0o755)
        if shutil.which("python3", path=SYSTEM_PATH) is None:
            (host_dir / "bin/python3").symlink_to(self.record.python)

    def _write_sshd(self, host: HostRecord, authorized_key: str) -> None:
        host_dir = self.paths.host(host.name)
        environment = {**self._environment(host), "FLEETCTL_STATE": f"{host_dir}/var/lib/fleetctl"}
        settings = SSHD_CONFIG.format(
            address=host.address,
            port=host.port,
            host_dir=host_dir,
            environment=" ".join(f'"{name}={value}"' for name, value in environment.items()),
        )
        ssh = host_dir / "etc/ssh"
        text = settings + sshd_extras(require_program("sshd"))
        (ssh / "sshd_config").write_text(text, encoding="utf-8")
        (ssh / "authorized_keys").write_text(f"{authorized_key}\n", encoding="utf-8")
        ensure_key(ssh / "ssh_host_ed25519_key", "lab host")

    def _environment(self, host: HostRecord) -> dict[str, str]:
        host_dir = self.paths.host(host.name)
        return {
            "PATH": f"{host_dir}/bin:{SYSTEM_PATH}",
            "HOME": f"{host_dir}/home",
            "TMPDIR": f"{host_dir}/tmp",  # noqa: S108 - the host's own
            MARK: str(host_dir),
        }

    def boot(self, host: HostRecord) -> None:
        """Start the host's first process, which starts sshd and the enabled units."""
        host_dir = self.paths.host(host.name)
        self.prepare()
        for name in VOLATILE:
            remove_directory(host_dir / name)
            make_directory(host_dir / name)
        with self.paths.console(host.name).open("ab") as console:
            subprocess.run(
                [f"{host_dir}/bin/systemctl", BOOT],
                env=self._environment(host),
                cwd=host_dir,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                check=False,  # whether it lives is seen by whether it answers
            )

    def kill(self, host: HostRecord) -> None:
        """End every process of the host; what they wrote stays."""
        self._end(lambda: _pids_in(re.escape(bytes(self.paths.host(host.name)))))

    def _end(self, find: Callable[[], set[int]]) -> None:
        """Stop all first, so that none can start another while the others end.

        A signal is not yet a stop: one that is in the middle of a fork finishes that first.
        """
        deadline_s = self.clock.monotonic_s() + DEATH_DEADLINE_S
        stopped: set[int] = set()
        killed: set[int] = set()
        while found := find():
            for pid in found - stopped:
                _signal(pid, signal.SIGSTOP)
            # found once more: the last act of one that now stands still may have been a child
            if found <= stopped and _stand_still(found - killed) and find() <= stopped:
                for pid in found:
                    _signal(pid, signal.SIGKILL)
                killed |= found
            stopped |= found
            self.clock.sleep(POLL_S)
            if self.clock.monotonic_s() > deadline_s:
                raise LabError(
                    "processes of a lab host don't die",
                    why=f"{sorted(found)} outlived SIGKILL for {DEATH_DEADLINE_S:g} s",
                    next_step="look at them with `ps`; a process in state D waits for a device",
                )

    def check_can_be_cut(self, host: HostRecord) -> None:
        """Refuse: the host has no network of its own.

        Raises:
            LabError: always.
        """
        raise _cannot(f"be cut from the network ({host.name})", "it shares this machine's loopback")

    def cut(self, host: HostRecord) -> None:
        """Refuse, as `check_can_be_cut` does."""
        self.check_can_be_cut(host)

    def heal(self, host: HostRecord) -> None:
        """Refuse, as `check_can_be_cut` does."""
        self.check_can_be_cut(host)

    def discard(self, host: HostRecord) -> None:
        """Remove everything of one host, however far its making came."""
        self.kill(host)
        remove_directory(self.paths.host(host.name))

    def discard_all(self) -> None:
        """End all processes of the lab; its files are removed with its directory."""
        self._end(lambda: pids_of_lab(self.paths.directory))
        _remove_privsep_directory()

    def state(self, host: HostRecord) -> HostState:
        """Return what can be told about the host without talking to it."""
        if host.phase is Phase.MAKING:
            return HostState.UNMADE
        if _first_processes(re.escape(bytes(self.paths.host(host.name)))):
            return HostState.UP  # what outlives its first process is no host any more
        return HostState.KILLED if host.wanted is Wanted.KILLED else HostState.STOPPED

    def known_hosts(self, host: HostRecord) -> str:
        """Return the host's line of known_hosts."""
        key = self.paths.host(host.name) / "etc/ssh/ssh_host_ed25519_key.pub"
        return known_hosts_line(host.address, host.port, key.read_text(encoding="ascii"))

    def last_words(self, host: HostRecord) -> str:
        """Return the end of the host's console and of its sshd's log, for error messages."""
        log = self.paths.host(host.name) / "var/log/journal/ssh.service.log"
        return "\n".join([tail_of(self.paths.console(host.name), 10), tail_of(log, 5)]).strip()


def check_replacement() -> None:
    """Refuse where the stand-in for systemd is missing.

    Raises:
        LabError: it is not installed.
    """
    if importlib.util.find_spec("systemctl2") is None:
        raise LabError(
            "hosts made of processes need docker-systemctl-replacement",
            why=f"it is not installed for {sys.executable}",
            next_step=f"{sys.executable} -m pip install 'docker-systemctl-replacement>=1.7'",
        )


def _cannot(what: str, why: str) -> LabError:
    return LabError(
        f"a host made of processes can't {what}",
        why=why,
        next_step="use a machine that permits namespaces: fleetctl lab up --kind namespaces",
    )


def _free_ports(count: int, taken: set[int]) -> list[int]:
    """Return ports nothing listens on; begins anywhere, so that labs don't meet."""
    found: list[int] = []
    start = secrets.randbelow(len(PORTS))
    for offset in range(len(PORTS)):
        port = PORTS[(start + offset) % len(PORTS)]
        if port not in taken and _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise LabError(
        "no free port for another host",
        why=f"{PORTS.start} to {PORTS.stop} are all in use",
        next_step="end labs that are not needed: fleetctl lab down --dir DIR",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _remove_privsep_directory() -> None:
    """Remove what `prepare` made, unless an sshd of another lab or of the machine needs it."""
    mark = PRIVSEP / PRIVSEP_MARK
    if not mark.exists() or pids_matching("cmdline", re.compile(rb"sshd")):
        return
    mark.unlink()
    with contextlib.suppress(OSError):
        PRIVSEP.rmdir()
