"""Everything a fault could have left wrong on a host; sent as text and run by the host's Python.

    python -c TEXT TREE STATE UNIT     (UNIT may be empty)

Prints JSON: every file with bytes, mode, owner, mtime and attributes, the unit, what is left over.
"""

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

UNITS = Path("/etc/systemd/system")
CLAIMS = (Path("/run/fleetctl"), Path("/run/lock"))


def main() -> None:
    """Look and print."""
    tree, state, unit = sys.argv[1:]
    found = files(Path(tree))
    left = left_over(found, Path(state))
    json.dump({"files": found, "unit": facts_of(unit), "left": sorted(left)}, sys.stdout)


def files(tree: Path) -> dict[str, list[object]]:
    """Return a description of every path below a tree; bytecode is Python's own business."""
    paths = [path for path in tree.rglob("*") if "__pycache__" not in path.parts]
    found = {}
    for path in paths:
        try:
            found[str(path.relative_to(tree))] = describe(path)
        except FileNotFoundError:  # replaced just now; the next look sees what it became
            found[str(path.relative_to(tree))] = ["vanished"]
    return found


def describe(path: Path) -> list[object]:
    """Return kind, mode, owner and, for files, content, time, links and attributes."""
    status = path.lstat()
    common: list[object] = [stat.filemode(status.st_mode), status.st_uid, status.st_gid]
    if stat.S_ISLNK(status.st_mode):
        return [*common, str(path.readlink())]
    if not stat.S_ISREG(status.st_mode):
        return common
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    names = sorted(os.listxattr(path))
    attributes = [[name, os.getxattr(path, name).hex()] for name in names]
    return [*common, digest, status.st_mtime_ns, status.st_nlink, attributes]


def facts_of(unit: str) -> dict[str, str]:
    """Return what must be as before about a unit."""
    if not unit:
        return {}
    wanted = "ActiveState,SubState,UnitFileState,LoadState,DropInPaths,NeedDaemonReload"
    return dict(line.split("=", 1) for line in lines("systemctl", "show", "-p", wanted, unit))


def left_over(found: dict[str, list[object]], state: Path) -> set[str]:
    """Return temporary files, timers, units, leases and processes that should be gone."""
    left = {f"temporary {path}" for path in found if ".fleetctl-" in path}
    for folder in (state / "leases", state / "scratch"):
        left |= {str(path.relative_to(state)) for path in folder.glob("*")}
    for folder in CLAIMS:
        claims = (path for path in folder.glob("*") if path.is_file())
        left |= {str(path) for path in claims if str(state).encode() in content(path)}
    for folder in (UNITS, UNITS / "multi-user.target.wants"):
        left |= {str(path) for path in folder.glob("fleetctl*")}
    if Path("/run/systemd/system").is_dir():
        rows = lines("systemctl", "list-units", "--all", "--plain", "--no-legend", "fleetctl*")
        left |= {f"unit {row.split()[0]}" for row in rows}
    return left | processes(state)


def content(path: Path) -> bytes:
    """Return a file's bytes; none where it is gone by now."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def processes(state: Path) -> set[str]:
    """Return agents that still run; they name the state directory."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.startswith(f"{state}/agent/") for word in words[:6]):
            found.add(f"process {' '.join(words[4:])}")
    return found


def lines(*argv: str) -> list[str]:
    """Return what a command prints."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()
