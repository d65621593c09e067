"""Everything said to systemctl and journalctl, and what /proc knows about a unit's processes.

A stand-in for systemctl (hosts without systemd as PID 1) may leave out properties; then the main
process and its descendants stand for the control group, and its pid and start time for the
invocation.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Sequence

from fleetctl.transaction.image import UnitBefore
from fleetctl.transaction.snapshot import Process

COMMAND_DEADLINE_S = 30.0
PROPERTIES = (
    "ActiveState",
    "BoundBy",
    "ConsistsOf",
    "ControlGroup",
    "DropInPaths",
    "EnvironmentFiles",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecStart",
    "FragmentPath",
    "InvocationID",
    "KillMode",
    "LoadState",
    "MainPID",
    "NRestarts",
    "NeedDaemonReload",
    "PropagatesStopTo",
    "RequiredBy",
    "RequisiteOf",
    "Restart",
    "Result",
    "SubState",
    "Type",
    "UnitFileState",
    "User",
    "WorkingDirectory",
)
ON_ITS_WAY = ("active", "activating", "reloading")


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    exit_code: int
    output: str
    errors: str


class SystemctlMissing(Exception):
    """There is no systemctl here."""


class Systemctl:
    """Commands as argument lists, answers as values."""

    def run(self, *words: str, deadline_s: float = COMMAND_DEADLINE_S) -> Said:
        """Run `systemctl` with these words.

        Raises:
            SystemctlMissing: there is none.
        """
        return self.command("systemctl", *words, deadline_s=deadline_s)

    def command(self, *argv: str, deadline_s: float = COMMAND_DEADLINE_S) -> Said:
        """Run a command of systemd's; one that does not end in time counts as failed."""
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=deadline_s,
                check=False,
                env={**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
            )
        except subprocess.TimeoutExpired:
            return Said(124, "", f"{argv[0]} did not answer within {deadline_s:.0f} s")
        except FileNotFoundError:
            raise SystemctlMissing(f"{argv[0]} is not there") from None
        return Said(done.returncode, _text(done.stdout), _text(done.stderr))

    def show(self, unit: str, names: Sequence[str] = PROPERTIES) -> dict[str, str]:
        """Return a unit's properties, as far as they are known here."""
        said = self.run("show", "--no-pager", f"--property={','.join(names)}", "--", unit)
        lines = [line.split("=", 1) for line in said.output.splitlines() if "=" in line]
        properties: dict[str, str] = {}
        for name, value in lines:
            known = properties.get(name)  # EnvironmentFiles may be there several times
            properties[name] = value if known is None else f"{known}\n{value}"
        return properties

    def log_lines(self, unit: str, properties: Mapping[str, str], count: int) -> tuple[str, ...]:
        """Return the last lines that the unit's current or last invocation wrote."""
        invocation = properties.get("InvocationID", "")
        chosen = (
            [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
            if invocation
            else ["-u", unit]
        )
        words = ["--no-pager", "--quiet", "--output=short-iso", f"--lines={count}", *chosen]
        try:
            said = self.command("journalctl", *words, deadline_s=10.0)
        except SystemctlMissing:
            return ()
        return tuple(said.output.splitlines()[-count:])


def _text(output: bytes) -> str:
    return output.decode(errors="replace").strip()


def invocation(properties: Mapping[str, str]) -> str:
    """Return what tells one running instance of a unit from the next; empty when none runs."""
    if properties.get("ActiveState") not in ON_ITS_WAY:
        return ""
    if properties.get("InvocationID"):
        return properties["InvocationID"]
    pid = main_pid(properties)
    return f"pid {pid} started {started_ticks(pid)}" if pid else ""


def main_pid(properties: Mapping[str, str]) -> int:
    """Return MainPID; 0 where there is none."""
    text = properties.get("MainPID", "")
    return int(text) if text.isdigit() else 0


def restarts(properties: Mapping[str, str]) -> int | None:
    """Return NRestarts; None where it is not told."""
    text = properties.get("NRestarts", "")
    return int(text) if text.isdigit() else None


def identity(systemctl: Systemctl, unit: str) -> str:
    """Return what tells a unit from every other on this machine, whatever alias it is called by.

    Hosts made of processes have units of one name in different places. Empty for a unit that is not
    there, and for none.
    """
    if not unit:
        return ""
    try:
        properties = systemctl.show(unit, ("Id", "FragmentPath"))
    except SystemctlMissing:
        return ""
    path = properties.get("FragmentPath", "")
    return f"{properties.get('Id') or unit} {os.path.realpath(path)}" if path else ""


def unit_before(properties: Mapping[str, str]) -> UnitBefore:
    """Return what the undo of a restart must know."""
    active_state = properties.get("ActiveState", "")
    return UnitBefore(
        active=active_state in ON_ITS_WAY,
        state=f"{active_state}/{properties.get('SubState', '')}",
        enabled=properties.get("UnitFileState", ""),
        invocation=invocation(properties),
    )


def unit_pids(properties: Mapping[str, str]) -> tuple[int, ...]:
    """Return the live processes of a unit: its control group, or its main process's family."""
    group = properties.get("ControlGroup", "")
    if group and group != "/":
        return _pids_in_group(group)
    root = main_pid(properties)
    return _family(root) if root else ()


def group_pids(group: str) -> tuple[int, ...]:
    """Return the live processes of a control group and those below it."""
    return _pids_in_group(group)


def _pids_in_group(group: str) -> tuple[int, ...]:
    return tuple(pid for pid in _all_pids() if _is_in_group(pid, group) and is_alive(pid))


def _is_in_group(pid: int, group: str) -> bool:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return False
    own = [line.split(":", 2) for line in lines]
    paths = [path for _, names, path in own if names in {"", "name=systemd"}]
    return any(path == group or path.startswith(f"{group}/") for path in paths)


def _family(root: int) -> tuple[int, ...]:
    parents = {pid: fields[1] for pid in _all_pids() if (fields := _stat(pid)) is not None}
    family = [root] if root in parents else []
    for pid in family:
        family += [child for child, parent in parents.items() if parent == str(pid)]
    return tuple(pid for pid in family if is_alive(pid))


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat behind the name: state, parent, …; None when gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in {"Z", "X"}


def started_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def process(pid: int, flags: Sequence[str]) -> Process | None:
    """Return a process with the environment variables asked for; None when it is gone."""
    fields = _stat(pid)
    if fields is None:
        return None
    environment = _environment(pid)
    known = tuple(
        (name, environment[name]) for name in flags if environment and name in environment
    )
    return Process(
        pid=pid,
        parent=int(fields[1]),
        executable=_executable(pid),
        started_ticks=int(fields[19]),
        flags=known,
        environment_readable=environment is not None,
    )


def _executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _environment(pid: int) -> dict[str, str] | None:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = [item.partition(b"=") for item in data.split(b"\0") if item]
    return {
        name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs
    }
