"""What restores the host when nobody renews the lease.

With systemd: a transient timer runs `expire` once; if the lease was renewed meanwhile, `expire`
arms the next timer for the remainder, so renewing costs one small file. A unit that is started at
boot, before the service, does the same after a reboot, where transient units are gone.
Without: a detached process that looks at the lease every second.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from fleetctl.agent import systemd
from fleetctl.agent.claims import ROOTS
from fleetctl.agent.leases import DEADMAN_TIMER, DEADMAN_WATCHER, Armed
from fleetctl.agent.state import StateDir, sync_directory, write_all
from fleetctl.agent.systemd import Systemctl, SystemctlMissing

UNITS = Path("/etc/systemd/system")
WANTS = UNITS / "multi-user.target.wants"
BOOT_MARKS = ROOTS  # the claim of a lease, which a reboot removes
SYSTEMD_RUNS = Path("/run/systemd/system")
TIMER_ACCURACY = "500ms"
# `systemctl isolate` ends everything else; older versions of systemd-run do not know how to say so
STAYS_ISOLATED = ("--timer-property=IgnoreOnIsolate=yes", "--property=IgnoreOnIsolate=yes")
RETRY_S = 5

BOOT_UNIT = """\
[Unit]
Description=fleetctl restores this host if it was rebooted during lease {lease}
DefaultDependencies=no
RequiresMountsFor="{state}" "{python}"
After=local-fs.target
Before=multi-user.target {unit}
ConditionPathExists=!{mark}

[Service]
Type=oneshot
ExecStart=:"{python}" -I -S "{agent}" recover "{state}"
TimeoutStartSec=15min

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Program:
    """How the agent starts itself again.

    Attributes:
        python: absolute path of the interpreter.
        agent: absolute path of the zipapp.
    """

    python: str
    agent: str

    def argv(self, verb: str, state: StateDir, *words: str) -> list[str]:
        """Return the command line of a verb."""
        return [self.python, "-I", "-S", self.agent, verb, str(state.path), *words]


class NotArmed(Exception):
    """Nothing would restore the host, so nothing may be changed."""


class DeadMan:
    """Arms and disarms what enforces leases."""

    def __init__(self, state: StateDir, program: Program, systemctl: Systemctl) -> None:
        self._state = state
        self._program = program
        self._systemctl = systemctl

    def arm(self, lease_id: str, unit: str, length_s: float) -> Armed:
        """Arm timer and boot unit, or a watcher where systemd cannot be used.

        Raises:
            NotArmed: neither works.
        """
        if self._may_use_systemd():
            return self._arm_systemd(lease_id, unit, length_s)
        return self._arm_watcher(lease_id)

    def _may_use_systemd(self) -> bool:
        return os.geteuid() == 0 and self._has_systemd()

    def _has_systemd(self) -> bool:
        """Tell whether systemd runs and is the one that answers here.

        A stand-in for systemctl may stand before the machine's own systemd (hosts made of
        processes): then systemd-run is refused, and its timers would be somebody else's.
        """
        if not SYSTEMD_RUNS.is_dir():
            return False
        try:
            return self._systemctl.command("systemd-run", "--version").exit_code == 0
        except SystemctlMissing:
            return False

    def _arm_systemd(self, lease_id: str, unit: str, length_s: float) -> Armed:
        mark, timer = BOOT_MARKS / lease_id, ""
        try:
            # first, because it also clears away the rest if we die before there is a lease
            timer = self.start_timer(lease_id, length_s)
            BOOT_MARKS.mkdir(mode=0o755, exist_ok=True)
            mark.touch(mode=0o600)
            self._write_boot_unit(lease_id, unit, mark)
        except (OSError, SystemctlMissing) as error:
            self._remove_systemd(lease_id, timer)
            raise NotArmed(str(error)) from error
        return Armed(DEADMAN_TIMER, boot_mark=str(mark), timer=timer)

    def _write_boot_unit(self, lease_id: str, unit: str, mark: Path) -> None:
        text = BOOT_UNIT.format(
            lease=lease_id,
            unit=unit,
            mark=mark,
            state=_escaped(str(self._state.path)),
            python=_escaped(self._program.python),
            agent=_escaped(self._program.agent),
        )
        name = boot_unit(lease_id)
        path = UNITS / name
        self._make_wants()
        # a unit without its link runs at no boot, so a power cut in between would leave it behind
        _appear(path, text.encode())
        link = WANTS / name
        if not link.is_symlink():
            link.symlink_to(path)
        sync_directory(UNITS)
        sync_directory(WANTS)

    def _make_wants(self) -> None:
        """Make the directory of links where a host has none, and note that it is ours."""
        if not WANTS.is_dir():
            self._made_wants.touch(mode=0o600)
            WANTS.mkdir(exist_ok=True)
            WANTS.chmod(0o755)  # whatever the umask

    def _remove_wants(self) -> None:
        if self._made_wants.exists():
            with contextlib.suppress(OSError):  # others have put links of theirs into it
                WANTS.rmdir()
                self._made_wants.unlink()

    @property
    def _made_wants(self) -> Path:
        return self._state.path / "made-wants"

    def start_timer(self, lease_id: str, delay_s: float) -> str:
        """Start a timer that runs `expire` in `delay_s`; return its name.

        Raises:
            OSError: systemd did not take it.
        """
        name = f"fleetctl-expire-{lease_id}-{os.getpid()}"
        words = [
            f"--unit={name}",
            f"--description=fleetctl restores this host unless lease {lease_id} is renewed",
            f"--on-active={max(delay_s, 0.1):.3f}s",
            f"--timer-property=AccuracySec={TIMER_ACCURACY}",
            "--property=Restart=on-failure",
            f"--property=RestartSec={RETRY_S}",
            "--property=StartLimitIntervalSec=0",
            "--property=OOMScoreAdjust=-1000",
            "--quiet",
        ]
        argv = self._program.argv("expire", self._state, lease_id)
        said = self._systemctl.command("systemd-run", *words, *STAYS_ISOLATED, *argv)
        if said.exit_code != 0 and "IgnoreOnIsolate" in said.errors:
            said = self._systemctl.command("systemd-run", *words, *argv)
        if said.exit_code != 0:
            raise OSError(f"systemd-run: {said.errors or said.output}")
        return f"{name}.timer"

    def _arm_watcher(self, lease_id: str) -> Armed:
        try:
            pid = detached(self._program.argv("watch", self._state, lease_id))
        except OSError as error:
            raise NotArmed(str(error)) from error
        ticks = systemd.started_ticks(pid)
        return Armed(DEADMAN_WATCHER, watcher_pid=pid, watcher_ticks=ticks)

    def disarm(self, lease_id: str, armed: Armed | None) -> None:
        """Remove everything that enforces a lease; what is gone already is fine."""
        if armed is not None and armed.watcher_pid:
            _end_watcher(armed)
            return
        self._remove_systemd(lease_id, armed.timer if armed is not None else "")

    def _remove_systemd(self, lease_id: str, timer: str) -> None:
        name = boot_unit(lease_id)
        for path in (WANTS / name, UNITS / name, BOOT_MARKS / lease_id):
            _remove(path)
        self._remove_wants()
        with contextlib.suppress(OSError):  # it never existed, or other leases live
            BOOT_MARKS.rmdir()
        if timer:
            self._systemctl.run("stop", "--", timer)
        if not timer and not self._may_use_systemd():
            return
        if self._systemctl.show(name).get("LoadState") == "loaded":
            self._systemctl.run("daemon-reload")  # somebody's reload had read the boot unit

    def armed_for_boot(self) -> set[str]:
        """Return the ids of the leases for which this state has a unit at boot."""
        start, end = boot_unit("*").split("*")
        ours = f'recover "{_escaped(str(self._state.path))}"\n'
        found = [path for path in UNITS.glob(boot_unit("*")) if ours in _text_of(path)]
        return {path.name[len(start) : -len(end)] for path in found}


def detached(argv: list[str]) -> int:
    """Start a program that nothing of ours ends: own session, no parent, no open files.

    Returns:
        Its pid.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            grandchild = os.fork()
            if grandchild == 0:
                _become(argv)
            os.write(writing, b"%d" % grandchild)
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    if not told:
        raise OSError("no process could be started")
    return int(told)


def _become(argv: list[str]) -> None:
    try:
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        os.closerange(3, 4096)
        os.execv(argv[0], argv)  # noqa: S606 - a list of our own, no shell
    finally:
        os._exit(127)


def _appear(path: Path, content: bytes) -> None:
    """Let a file appear with its whole content, durably; until then it has no name.

    Where that is not possible (some network file systems; a file that is there already) it is
    written in place.
    """
    try:
        fd = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    except OSError:
        _write_in_place(path, content)
        return
    try:
        write_all(fd, content)
        os.fsync(fd)
        _give_name(fd, path)
    except FileExistsError:
        _write_in_place(path, content)
    finally:
        os.close(fd)


def _give_name(fd: int, path: Path) -> None:
    # Python follows the link below /proc, as it must here, only when it is told a directory
    descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.link(str(fd), path, src_dir_fd=descriptors, follow_symlinks=True)
    finally:
        os.close(descriptors)


def _write_in_place(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)


def boot_unit(lease_id: str) -> str:
    """Return the name of a lease's unit for the next boot."""
    return f"fleetctl-recover-{lease_id}.service"


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _end_watcher(armed: Armed) -> None:
    same = systemd.started_ticks(armed.watcher_pid) == armed.watcher_ticks
    if same and armed.watcher_pid != os.getpid():
        os.kill(armed.watcher_pid, signal.SIGTERM)


def _escaped(text: str) -> str:
    r"""Return text for a quoted word in a unit file: `%`, `"` and `\` mean something there."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%")):
        text = text.replace(plain, escaped)
    return text
