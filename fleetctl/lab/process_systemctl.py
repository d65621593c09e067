"""The systemctl of a host made of processes: docker-systemctl-replacement, moved to its root.

    python process_systemctl.py HOST_DIR WORD...

The replacement reads units below HOST_DIR and runs what they name. Added here is what the tools
of a real host go by: an invocation id for each start, a restart counter, where unit and drop-ins
are, a clean environment for services; and `boot`, the host's first process, which adopts
orphans, starts the enabled units and restarts those that fail.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
KEPT_VARIABLES = ("PATH", "LANG", "FLEETCTL_LAB_HOST")
# the replacement's own pace is made for containers: it rests half a second after each start, and
# before each stop it reads all of /proc a hundred times to find processes at any depth
PACE = ("MinimumYield=0.05", "InitLoopSleep=1", "PROC_MAX_DEPTH=10")
STAMP_PERIOD_S = 0.1
BOOT = "@boot"  # no word that anybody would say to systemctl
INIT = "init"
# of the replacement's verbs those that stay within the host: `halt`, for one, signals the
# first process of the machine
VERBS = frozenset(
    {
        "cat",
        "clean",
        "daemon-reexec",
        "daemon-reload",
        "disable",
        "enable",
        "get-default",
        "is-active",
        "is-enabled",
        "is-failed",
        "is-system-running",
        "kill",
        "list-dependencies",
        "list-unit-files",
        "list-units",
        "mask",
        "reload",
        "reload-or-restart",
        "reset-failed",
        "restart",
        "show",
        "show-environment",
        "start",
        "status",
        "stop",
        "try-restart",
        "unmask",
        "version",
    }
)


@dataclass(frozen=True)
class Invocation:
    """One start of a unit.

    Attributes:
        offset_bytes: where its output begins in the unit's log.
        restarts: how often it was restarted by itself since somebody started it.
    """

    invocation_id: str
    started_s: float
    offset_bytes: int
    restarts: int


def invocations_path(host_dir: Path, unit: str) -> Path:
    """Return the file with a unit's invocations, one JSON object a line, oldest first."""
    return host_dir / "run" / "invocations" / unit


def read_invocations(host_dir: Path, unit: str) -> list[Invocation]:
    """Return a unit's invocations since boot, oldest first."""
    try:
        lines = invocations_path(host_dir, unit).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [Invocation(**json.loads(line)) for line in lines]


def log_path(host_dir: Path, unit: str) -> Path:
    """Return the log of a unit."""
    return host_dir / "var" / "log" / "journal" / f"{unit}.log"


def times_path(host_dir: Path, unit: str) -> Path:
    """Return the file that says when the log of a unit had grown beyond an offset."""
    return host_dir / "run" / "log-times" / unit


def main(arguments: list[str]) -> int:
    """Run one systemctl command for the host."""
    host_dir, words = Path(arguments[0]), arguments[1:]
    is_first_process = words == [BOOT]
    if is_first_process:
        _become_first_process(host_dir)
        words = [INIT]
    manager: Any = importlib.import_module("systemctl2.systemctl3")
    _extend(manager, host_dir, is_first_process=is_first_process)
    _confine(manager, VERBS | {INIT} if is_first_process else VERBS)
    os.environ |= {"LANG": os.environ.get("LANG", "C.UTF-8")}
    for name in set(os.environ) - set(KEPT_VARIABLES):
        del os.environ[name]
    settings = [f"_notify_socket_folder={host_dir}/run/systemd", *PACE]
    options = [f"--root={host_dir}", *(part for setting in settings for part in ("-c", setting))]
    sys.argv = ["systemctl", *options, *words]
    return int(manager.main() or 0)


def _become_first_process(host_dir: Path) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    threading.Thread(target=_stamp_logs, args=(host_dir,), daemon=True).start()


def _stamp_logs(host_dir: Path) -> None:
    """Note when each log grew, so that journalctl can tell the time of a line to 0.1 s."""
    known: dict[Path, int] = {}
    while True:
        for log in (host_dir / "var" / "log" / "journal").glob("*.log"):
            size_bytes = log.stat().st_size
            if size_bytes > known.get(log, 0):
                times = times_path(host_dir, log.name.removesuffix(".log"))
                times.parent.mkdir(exist_ok=True)
                with times.open("a", encoding="ascii") as out:
                    out.write(f"{known.get(log, 0)} {time.time():.1f}\n")
            known[log] = size_bytes
        time.sleep(STAMP_PERIOD_S)  # noqa: TID251 - a thread of the host, where nobody passes a clock


def _extend(manager: Any, host_dir: Path, *, is_first_process: bool) -> None:  # noqa: ANN401 - the replacement has no types to name
    start_service = manager.Systemctl.do_start_service_from
    each_item = manager.Systemctl.each_unit_items

    def start(systemctl: Any, conf: Any) -> bool:  # noqa: ANN401 - as above
        if not systemctl.is_active_from(conf):
            log = Path(systemctl.journal.get_log_from(conf))
            _record_start(host_dir, conf.name(), log, by_itself=is_first_process)
        return bool(start_service(systemctl, conf))

    def items(systemctl: Any, unit: str, conf: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
        yield from each_item(systemctl, unit, conf)
        yield from _more_properties(host_dir, conf)

    manager.Systemctl.do_start_service_from = start
    manager.Systemctl.each_unit_items = items


def _confine(manager: Any, verbs: frozenset[str]) -> None:  # noqa: ANN401 - as above
    run_command = manager.runcommand

    def confined(verb: str, *words: str) -> int:
        if verb not in verbs:
            sys.stderr.write(f"systemctl {verb}: not on a host made of processes\n")
            return 1
        return int(run_command(verb, *words) or 0)

    manager.runcommand = confined


def _record_start(host_dir: Path, unit: str, log: Path, *, by_itself: bool) -> None:
    """Give the service that is about to start an invocation id, and remember it."""
    before = read_invocations(host_dir, unit)
    restarts = before[-1].restarts + 1 if by_itself and before else 0
    offset_bytes = log.stat().st_size if log.exists() else 0
    current = Invocation(uuid.uuid4().hex, time.time(), offset_bytes, restarts)
    path = invocations_path(host_dir, unit)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(current)) + "\n")
    os.environ["INVOCATION_ID"] = current.invocation_id


def _more_properties(host_dir: Path, conf: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - as above
    invocations = read_invocations(host_dir, conf.name())
    yield "FragmentPath", conf.filename() or ""
    yield "DropInPaths", " ".join(conf.overrides())
    yield "Type", conf.get("Service", "Type", "simple")
    yield "Restart", conf.get("Service", "Restart", "no")
    for command in conf.getlist("Service", "ExecStart", []):
        yield "ExecStart", f"{{ path={command.split()[0]} ; argv[]={command} ; ignore_errors=no }}"
    for file in conf.getlist("Service", "EnvironmentFile", []):
        optional = "yes" if file.startswith("-") else "no"
        yield "EnvironmentFiles", f"{_in_host(host_dir, file)} (ignore_errors={optional})"
    if invocations:
        yield "InvocationID", invocations[-1].invocation_id
        yield "NRestarts", str(invocations[-1].restarts)


def _in_host(host_dir: Path, file: str) -> str:
    path = file.removeprefix("-")
    return path if path.startswith(f"{host_dir}/") else f"{host_dir}{path}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
