"""Files of lab hosts get their modes explicitly: the operator's umask is not the host's."""

from __future__ import annotations

import shutil
from pathlib import Path

from fleetctl.errors import LabError
from fleetctl.lab.machine import mount_points_below


def make_directory(path: Path, mode: int = 0o755) -> None:
    """Create a directory and its missing parents, each with exactly this mode."""
    if path.is_dir():
        return
    make_directory(path.parent, mode)
    path.mkdir(exist_ok=True)
    path.chmod(mode)


def make_readable(tree: Path) -> None:
    """Give directories 0755 and files 0644, as a release on a host has them."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def tail_of(path: Path, lines: int) -> str:
    """Return the last lines of a text file; empty if there is none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def remove_directory(directory: Path) -> None:
    """Remove a directory of the lab and everything in it.

    Raises:
        LabError: something is still mounted inside; nothing was removed.
    """
    if points := mount_points_below(directory):
        raise LabError(
            f"will not remove {directory}",
            why=f"still mounted inside: {', '.join(points)}",
            next_step=f"umount {points[0]}, then fleetctl lab down",
        )
    if directory.exists():
        shutil.rmtree(directory)
