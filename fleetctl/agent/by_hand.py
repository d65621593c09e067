"""A script that restores every file without fleetctl: for people, when all else failed."""

from __future__ import annotations

import os
import shlex
from typing import Iterator, Sequence

from fleetctl.agent.state import StateDir
from fleetctl.transaction.image import Absent, DirectoryBefore, FileBefore, UnitBefore
from fleetctl.transaction.journal import Change
from fleetctl.transaction.step import (
    LendDirectory,
    MakeDirectory,
    ReloadUnits,
    RestartUnit,
    Step,
    describe,
)

HEAD = """\
#!/bin/sh
# fleetctl, transaction {transaction}: how to undo it by hand, newest step first.
# Everything here can be done again. Extended attributes and ACLs of a file are not in this script;
# `getfattr -d -m - FILE` shows what there is. Look at each file before you overwrite it.
set -eu
lies_at() {{
  [ "$(readlink -f -- "$1" && echo .)" = "$1
." ] && [ ! -L "$2" ] && return
  printf '%s: it, or a directory on the way, is gone or a symlink by now\\n' "$2" >&2
  exit 1
}}
"""


def by_hand(state: StateDir, transaction: str, changes: Sequence[Change]) -> str:
    """Return a shell script that brings back contents, modes, owners and times."""
    files = [line for change in reversed(changes) for line in _lines(state, change)]
    last = [line for change in changes for line in _unit_lines(change)]
    lent = [
        f"rm -rf {shlex.quote(change.before.path)}"
        for change in changes
        if isinstance(change.step, LendDirectory) and isinstance(change.before, DirectoryBefore)
    ]
    return HEAD.format(transaction=transaction) + "\n".join([*files, *last, *lent]) + "\n"


def _unit_lines(change: Change) -> Iterator[str]:
    step, before = change.step, change.before
    if isinstance(step, ReloadUnits):
        yield "systemctl daemon-reload"
    if isinstance(step, RestartUnit) and isinstance(before, UnitBefore):
        unit = shlex.quote(step.unit)
        if not before.active:
            yield f"systemctl stop {unit}"
            yield f"systemctl reset-failed {unit} || true"
            return
        yield f"systemctl restart {unit}"
        if before.stopped_with:
            yield f"systemctl start {shlex.join(before.stopped_with)}"


def _comment(step: Step) -> str:
    """Return a comment of one line, whatever a path holds."""
    return "# " + describe(step).replace("\n", "?").replace("\r", "?")


def _lines(state: StateDir, change: Change) -> Iterator[str]:
    before = change.before
    if isinstance(change.step, MakeDirectory) and isinstance(before, DirectoryBefore):
        if before.existed:
            return
        yield _comment(change.step)
        yield f"rmdir {shlex.quote(before.path)} || true"
    if isinstance(before, FileBefore):
        yield _comment(change.step)
        yield from _file_lines(state, before)


def _file_lines(state: StateDir, before: FileBefore) -> Iterator[str]:
    path, image = shlex.quote(before.path), before.image
    folder = shlex.quote(os.path.dirname(before.path))
    yield f"lies_at {folder} {path}"
    if isinstance(image, Absent):
        yield f"rm -f {path}"
        return
    kept = shlex.quote(str(state.object_path(image.sha256)))
    whole_s, rest_ns = divmod(abs(image.mtime_ns), 1_000_000_000)
    seconds = f"{'-' if image.mtime_ns < 0 else ''}{whole_s}.{rest_ns:09d}"
    yield f"echo '{image.sha256}  '{kept} | sha256sum -c -"
    yield f"cp -f {kept} {path}"
    yield f"chown {image.uid}:{image.gid} {path}"
    yield f"chmod {image.mode:04o} {path}"
    yield f"touch -d @{seconds} {path}"
