"""Which names and values an environment can hold at all."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetctl.errors import EditRefused
from fleetctl.spec.limits import MOST_ARGUMENT_BYTES
from fleetctl.spec.quoted import quoted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OWNED_BY_SHELL = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})
_COMPUTED_BY_SHELL = frozenset(
    {"RANDOM", "SRANDOM", "SECONDS", "LINENO", "BASHPID", "EPOCHSECONDS", "EPOCHREALTIME", "SHLVL"}
    | {"BASH_COMMAND", "BASH_SUBSHELL", "FUNCNAME", "GROUPS", "DIRSTACK", "PIPESTATUS", "IFS"}
    | {"BASH_ARGV0", "HISTCMD", "POSIXLY_CORRECT"}
)


def is_name(name: str) -> bool:
    """Say whether a variable can have this name."""
    return _NAME.fullmatch(name) is not None


def is_unit_value(value: str) -> bool:
    """Say whether systemd takes a value: no control characters but tab and newline."""
    return not any(
        (c < " " and c not in "\t\n")
        or c == "\x7f"
        or "\ud800" <= c <= "\udfff"
        or "\ufdd0" <= c <= "\ufdef"
        or ord(c) & 0xFFFE == 0xFFFE
        for c in value
    )


def check_unit_values(edits: Mapping[str, str | None]) -> None:
    """Refuse values that systemd drops.

    Raises:
        EditRefused: `invalid-value`.
    """
    for name, value in edits.items():
        if value is not None and not is_unit_value(value):
            raise EditRefused(
                f"systemd would drop this value of {name}",
                code="invalid-value",
                why="it holds a control character other than tab and newline, or a noncharacter",
                next_step="set it in the serve script, or correct the value",
            )


def check_edits(edits: Mapping[str, str | None]) -> None:
    """Refuse what no environment can hold.

    Raises:
        EditRefused: `invalid-name` or `invalid-value`.
    """
    for name, value in edits.items():
        if not _NAME.fullmatch(name) or name == "_":
            raise EditRefused(
                f"{quoted(name)} can't be the name of a variable",
                code="invalid-name",
                why="a name is ASCII letters, digits and _, no digit first; _ alone is the shell's",
                next_step="correct the name",
            )
        if value is not None:
            _check_value(name, value)


def _check_value(name: str, value: str) -> None:
    problem = ""
    if "\0" in value:
        problem = "it holds a NUL"
    elif any("\ud800" <= c <= "\udfff" for c in value):
        problem = "it can't be encoded as UTF-8"
    elif len(name) + 1 + len(value.encode()) > MOST_ARGUMENT_BYTES:
        problem = (
            f"NAME=VALUE is longer than {MOST_ARGUMENT_BYTES} bytes, the most that Linux passes on"
        )
    if problem:
        raise EditRefused(
            f"no process can be given this value of {name}",
            code="invalid-value",
            why=problem,
            next_step="correct the value",
        )


def check_shell_names(edits: Mapping[str, str | None]) -> None:
    """Refuse names that a shell computes or protects itself.

    Raises:
        EditRefused: `readonly` or `unsupported`.
    """
    for name in edits:
        if name in _OWNED_BY_SHELL:
            raise EditRefused(
                f"{name} can't be set",
                code="readonly",
                why=f"bash makes {name} readonly",
                next_step=f"set it in the unit, or with `env {name}=...` before the command",
            )
        if name in _COMPUTED_BY_SHELL:
            raise EditRefused(
                f"{name} can't be set from the script",
                code="unsupported",
                why=f"the shell itself gives {name} its value, or works by it",
                next_step=f"put `env {name}=...` before the command by hand",
            )
