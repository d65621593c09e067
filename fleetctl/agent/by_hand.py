"""A script that restores every file without fleetctl: for people, when all else failed."""

from __future__ import annotations

import shlex
from typing import Iterator, Sequence

from fleetctl.agent.state import StateDir
from fleetctl.transaction.image import Absent, DirectoryBefore, FileBefore
from fleetctl.transaction.journal import Change
from fleetctl.transaction.step import (
    LendDirectory,
    MakeDirectory,
    ReloadUnits,
    RestartUnit,
    describe,
)

HEAD = """\
#!/bin/sh
# fleetctl, transaction {transaction}: how to undo it by hand, newest step first.
# Everything here can be done again. Extended attributes and ACLs of a file are not in this script;
# `getfattr -d -m - FILE` shows what there is. Look at each file before you overwrite it.
set -eu
"""


def by_hand(state: StateDir, transaction: str, changes: Sequence[Change]) -> str:
    """Return a shell script that brings back contents, modes, owners and times."""
    files = [line for change in reversed(changes) for line in _lines(state, change)]
    units = [c.step for c in changes if isinstance(c.step, (ReloadUnits, RestartUnit))]
    last = [
        "systemctl daemon-reload"
        if isinstance(step, ReloadUnits)
        else f"systemctl restart {step.unit}"
        for step in units
    ]
    lent = [
        f"rm -rf {shlex.quote(change.before.path)}"
        for change in changes
        if isinstance(change.step, LendDirectory) and isinstance(change.before, DirectoryBefore)
    ]
    return HEAD.format(transaction=transaction) + "\n".join([*files, *last, *lent]) + "\n"


def _lines(state: StateDir, change: Change) -> Iterator[str]:
    before = change.before
    if isinstance(change.step, MakeDirectory) and isinstance(before, DirectoryBefore):
        if before.existed:
            return
        yield f"# {describe(change.step)}"
        yield f"rmdir {shlex.quote(before.path)} || true"
    if isinstance(before, FileBefore):
        yield f"# {describe(change.step)}"
        yield from _file_lines(state, before)


def _file_lines(state: StateDir, before: FileBefore) -> Iterator[str]:
    path, image = shlex.quote(before.path), before.image
    if isinstance(image, Absent):
        yield f"rm -f {path}"
        return
    kept = shlex.quote(str(state.object_path(image.sha256)))
    seconds = f"{image.mtime_ns // 1_000_000_000}.{image.mtime_ns % 1_000_000_000:09d}"
    yield f"echo '{image.sha256}  '{kept} | sha256sum -c -"
    yield f"cp -f {kept} {path}"
    yield f"chown {image.uid}:{image.gid} {path}"
    yield f"chmod {image.mode:04o} {path}"
    yield f"touch -d @{seconds} {path}"
