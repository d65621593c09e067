"""The command line that runs one program under supervision on a host, built as a value.

The script itself is `supervisor.sh`. It is sent inside the command line, so a host needs nothing
but a POSIX shell and `setsid`, and nothing is left behind there.
"""

from __future__ import annotations

import functools
import json
import math
import os
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.errors import InternalError

SHELL = "/bin/sh"
STDIN_BLOCK_BYTES = 65536
# Linux refuses a single argument of 128 KiB or more; the login shell receives all of ours as one.
COMMAND_LIMIT_BYTES = 120_000
# By then the controller has long killed the group itself, unless it is gone.
HOST_GRACE_S = 10
# Expands the escapes and runs the result: free of everything that sh, bash, zsh, fish and csh
# read differently inside single quotes.
_BOOTSTRAP = 'eval "$(printf %b "$1")"'
_RISKY = frozenset(b"'\\!\n\r\t\0") | frozenset(range(32)) | frozenset(range(127, 256))


@dataclass(frozen=True)
class Mark:
    """What the supervisor prints around a program's output, new for each call."""

    first: str = field(default_factory=lambda: secrets.token_hex(8))
    second: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def printed(self) -> bytes:
        """The mark as it appears in a stream; the command line holds only its halves."""
        return f"{self.first}-{self.second}".encode()


@dataclass(frozen=True)
class Call:
    """One program to run.

    Attributes:
        argv: the program and its arguments, never seen by a shell.
        stdin: all that the program will read.
        deadline_s: seconds the program may take once it was started.
        prefix: a command that runs the supervisor as somebody else, such as `sudo -n --`.
        mark: this call's mark.
    """

    argv: tuple[str, ...]
    stdin: bytes
    deadline_s: float
    prefix: tuple[str, ...] = ()
    mark: Mark = field(default_factory=Mark)

    @property
    def framed_stdin(self) -> bytes:
        """What is sent after the supervisor's hello."""
        mark = self.mark.printed
        return b"go " + mark + b"\n" + self.stdin + mark + b"\n"


def script_for(call: Call) -> str:
    """Return the POSIX shell program that supervises a call.

    Raises:
        InternalError: the arguments are too long for one command line; they belong into stdin.
    """
    blocks, rest = divmod(len(call.stdin), STDIN_BLOCK_BYTES)
    limit_s = math.ceil(call.deadline_s) + HOST_GRACE_S
    words = (call.mark.first, call.mark.second, str(blocks), str(rest), str(limit_s), *call.argv)
    script = f"set -- {shlex.join(words)}\n{_supervisor_source()}"
    _require_room(len(os.fsencode(script)), call)
    return script


def local_argv(call: Call) -> list[str]:
    """Return what starts the supervisor on this machine."""
    return [*call.prefix, SHELL, "-c", script_for(call)]


def login_command(call: Call) -> str:
    """Return the line for a login shell of any kind: sh, bash, zsh, fish, csh or a wrapper.

    Raises:
        InternalError: the arguments are too long for one command line; they belong into stdin.
    """
    escaped = _escaped(script_for(call))
    words = [*(f"'{_escaped(word)}'" for word in call.prefix), SHELL, "-c", f"'{_BOOTSTRAP}'"]
    line = f"exec {' '.join(words)} sh '{escaped}'"
    _require_room(len(line), call)
    return line


def as_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a program and its arguments as a value, refusing what no kernel would run."""
    words = tuple(argv)
    if not words or not words[0] or any("\0" in word for word in words):
        raise InternalError(
            "cannot run an empty command or one with a NUL byte",
            why=f"it was asked to run {json.dumps(words)}",
            next_step="report this",
        )
    return words


def _require_room(size_bytes: int, call: Call) -> None:
    if size_bytes > COMMAND_LIMIT_BYTES:
        raise InternalError(
            f"cannot start `{call.argv[0]}` on a host",
            why=f"its arguments need a command line of {size_bytes} bytes, "
            f"and Linux takes {COMMAND_LIMIT_BYTES}",
            next_step="report this: large input must go through stdin",
        )


@functools.cache
def _supervisor_source() -> str:
    text = Path(__file__).with_name("supervisor.sh").read_text(encoding="utf-8")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#"))


def _escaped(text: str) -> str:
    return "".join(
        f"\\0{byte:03o}" if byte in _RISKY else chr(byte)
        for byte in text.encode("utf-8", "surrogateescape")
    )
