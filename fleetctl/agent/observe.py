"""What the host holds now, in one go and without changing anything."""

from __future__ import annotations

import glob
import grp
import hashlib
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Mapping

from fleetctl.agent import keeping, systemd
from fleetctl.agent.deadman import SYSTEMD_RUNS
from fleetctl.agent.edges import Edges
from fleetctl.agent.files import read_xattrs
from fleetctl.agent.systemd import SystemctlMissing
from fleetctl.transaction.snapshot import (
    MANAGER_ENVIRONMENT,
    MAX_CONTENT_BYTES,
    HostFacts,
    Observed,
    PathQuery,
    PathState,
    Query,
    UnitReport,
    UnitState,
)

GPU_DEADLINE_S = 15.0
DRIVER_VERSION = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
VERSION = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])"


def observe(edges: Edges, query: Query) -> Observed:
    """Return the answer to a query."""
    return Observed(
        paths=tuple(path_state(each) for each in query.paths),
        units=tuple(_unit_state(edges, unit) for unit in query.units),
        facts=_facts(edges, query.interpreters),
        status=keeping.status(edges),
    )


def path_state(query: PathQuery) -> PathState:
    """Return what is at a path; symlinks are followed and named."""
    path = query.path
    real_path = os.path.realpath(path)
    link = os.readlink(path) if Path(path).is_symlink() else None
    try:
        fd = os.open(real_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return PathState(path, real_path, "absent", link_target=link)
    except OSError as error:
        return PathState(path, real_path, _closed_kind(real_path), link, problem=str(error))
    try:
        return _open_state(query, real_path, link, fd)
    except OSError as error:
        return PathState(path, real_path, "unreadable", link, problem=str(error))
    finally:
        os.close(fd)


def _closed_kind(path: str) -> str:
    """Return what a thing that cannot be opened is: a socket opens for nobody."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "unreadable"  # a loop of symlinks, or a directory we may not enter
    return "unreadable" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "other"


def _open_state(query: PathQuery, real_path: str, link: str | None, fd: int) -> PathState:
    found = os.fstat(fd)
    content = None
    is_too_big = query.content and found.st_size > MAX_CONTENT_BYTES
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "other"
    if stat.S_ISREG(found.st_mode):
        kind = "file"
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read()
    return PathState(
        path=query.path,
        real_path=real_path,
        kind=kind,
        link_target=link,
        sha256=None if content is None else hashlib.sha256(content).hexdigest(),
        content=content if query.content and not is_too_big else None,
        mode=stat.S_IMODE(found.st_mode),
        owner=_user(found.st_uid),
        group=_group(found.st_gid),
        size_bytes=found.st_size if kind == "file" else None,
        mtime_ns=found.st_mtime_ns,
        links=found.st_nlink,
        xattr_sha256=_xattr_digest(fd),
        problem=_too_big(found.st_size) if kind == "file" and is_too_big else "",
    )


def _too_big(size_bytes: int) -> str:
    return f"it has {size_bytes} bytes, and {MAX_CONTENT_BYTES} is the most that is read of a file"


def _xattr_digest(fd: int) -> str:
    pairs = read_xattrs(fd)
    return hashlib.sha256(repr(pairs).encode()).hexdigest() if pairs else ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _unit_state(edges: Edges, unit: str) -> UnitState:
    try:
        properties = edges.systemctl.show(unit)
        given = edges.systemctl.run("show-environment")
    except SystemctlMissing as error:
        return UnitState(unit, {}, problem=str(error))
    if given.exit_code == 0:
        properties[MANAGER_ENVIRONMENT] = given.output
    sources = tuple(path_state(PathQuery(path, content=True)) for path in _sources(properties))
    return UnitState(unit, properties, sources)


def _sources(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the unit file, its drop-ins and its environment files."""
    if properties.get("FragmentPath"):
        yield properties["FragmentPath"]
    yield from properties.get("DropInPaths", "").split()
    for line in properties.get("EnvironmentFiles", "").splitlines():
        path = line.rpartition(" (ignore_errors=")[0] or line
        yield from sorted(glob.glob(path)) or [path]


def _facts(edges: Edges, interpreters: tuple[str, ...]) -> HostFacts:
    gpus = _lines("nvidia-smi", "-L")
    driver = _lines(*DRIVER_VERSION) if gpus else ()
    existing = next(p for p in (edges.state.path, *edges.state.path.parents) if p.exists())
    disk = os.statvfs(existing)
    return HostFacts(
        python=".".join(str(number) for number in sys.version_info[:3]),
        interpreters=tuple((path, _version(path)) for path in interpreters),
        kernel=os.uname().release,
        machine_id=_first_line("/etc/machine-id"),
        boot_id=edges.clock.boot_id(),
        user=_user(os.geteuid()),
        systemd=next(iter(_lines("systemctl", "--version")), "") if SYSTEMD_RUNS.is_dir() else "",
        state_bytes_free=disk.f_bavail * disk.f_frsize,
        gpus=gpus,
        gpu_driver=driver[0] if driver else "",
        now_s=edges.clock.now_s(),
    )


def _version(interpreter: str) -> str:
    found = _lines(interpreter, "-I", "-S", "-c", VERSION)
    return found[0] if found else "it cannot be run"


def _lines(*argv: str) -> tuple[str, ...]:
    """Return what a program prints; nothing where it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GPU_DEADLINE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(done.stdout.decode(errors="replace").splitlines())


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def unit_report(edges: Edges, unit: str, flags: tuple[str, ...], log_lines: int) -> UnitReport:
    """Return how a unit fares; see `Agent.unit`."""
    try:
        properties = edges.systemctl.show(unit)
    except SystemctlMissing:
        properties = {}
    processes = [systemd.process(pid, flags) for pid in systemd.unit_pids(properties)]
    return UnitReport(
        unit=unit,
        active_state=properties.get("ActiveState", "unknown"),
        sub_state=properties.get("SubState", "unknown"),
        result=properties.get("Result", ""),
        restarts=systemd.restarts(properties),
        invocation=systemd.invocation(properties),
        main_pid=systemd.main_pid(properties),
        processes=tuple(process for process in processes if process is not None),
        log_lines=edges.systemctl.log_lines(unit, properties, log_lines),
    )
