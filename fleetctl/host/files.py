"""Whole files over any transport that can run a program: one session each, nothing half written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from fleetctl.errors import RemoteFailed
from fleetctl.host.transport import Completed

DEADLINE_S = 60.0
SLOWEST_BYTES_PER_S = 1_000_000
GET_DEADLINE_S = 600.0

# $1 path, $2 mode, $3 sha256 of stdin. The name of the temporary file can't be guessed, and its
# mode is right before its name is.
_PUT = """set -eu
umask 077
if [ -d "$1" ] && [ ! -h "$1" ]; then echo "$1 is a directory" >&2; exit 21; fi
dir=$(dirname -- "$1")
tmp=$(mktemp "$dir/.fleetctl.XXXXXXXXXX")
trap 'rm -f -- "$tmp"' EXIT
trap 'exit 143' HUP INT TERM
cat >"$tmp"
set -- "$1" "$2" "$3" $(sha256sum <"$tmp")
if [ "$3" != "$4" ]; then echo "the bytes that arrived have another sha256: $4" >&2; exit 74; fi
chmod -- "$2" "$tmp"
sync "$tmp"
if [ -d "$1" ]; then rm -f -- "$1"; fi
mv -f -- "$tmp" "$1"
sync "$dir"
"""


class Runs(Protocol):
    """The part of a transport that files need."""

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        ...

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float) -> Completed:
        """Run a program to its end."""
        ...


def put_file(runs: Runs, content: bytes, path: str, *, mode: int) -> None:
    """Write a file atomically: temporary file beside it, digest checked, fsync, rename.

    A symbolic link at `path` is replaced, not followed.

    Raises:
        RemoteFailed: the host could not write it; nothing is left of the attempt.
    """
    digest = hashlib.sha256(content).hexdigest()
    done = runs.run(
        ["/bin/sh", "-c", _PUT, "put", path, f"{mode:04o}", digest],
        stdin=content,
        deadline_s=DEADLINE_S + len(content) / SLOWEST_BYTES_PER_S,
    )
    if done.exit_code != 0:
        raise _failed(runs, f"cannot write {path} on {runs.host_name}", done)


def get_file(runs: Runs, path: str) -> bytes:
    """Read a whole file.

    Raises:
        RemoteFailed: it can't be read.
    """
    done = runs.run(["cat", "--", path], deadline_s=GET_DEADLINE_S)
    if done.exit_code != 0:
        raise _failed(runs, f"cannot read {path} on {runs.host_name}", done)
    return done.stdout


def _failed(runs: Runs, what: str, done: Completed) -> RemoteFailed:
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return RemoteFailed(
        what,
        why=said[-1] if said else f"the program ended with exit code {done.exit_code}",
        next_step=f"look at the path and its permissions on {runs.host_name}",
    )
