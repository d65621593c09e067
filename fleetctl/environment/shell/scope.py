"""What words need to know at one moment of an analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.environment.shell.dataflow import HOLE, Means, State
from fleetctl.environment.shell.words import DEFAULT_SEPARATORS

if TYPE_CHECKING:
    from fleetctl.environment.shell.machine import Machine

ALWAYS_OWN = frozenset(
    {"UID", "EUID", "PPID", "BASHPID", "LINENO", "RANDOM", "SRANDOM", "SECONDS", "IFS", "OPTIND"}
    | {"EPOCHSECONDS", "EPOCHREALTIME", "BASH", "BASH_VERSION", "BASHOPTS", "SHELLOPTS", "SHLVL"}
    | {"BASH_REMATCH", "MAPFILE", "PIPESTATUS", "BASH_LINENO", "BASH_ARGV", "BASH_ARGC", "HISTCMD"}
    | {"BASH_VERSINFO", "BASH_EXECUTION_STRING", "COPROC"}
    | {"FUNCNAME", "BASH_COMMAND", "BASH_SUBSHELL", "_", "GROUPS", "REPLY", "DIRSTACK"}
)
"""Variables that the shell gives values of its own, whatever it was started with."""
OWN_WHERE_UNSET = frozenset(
    {"HOME", "PATH", "SHELL", "TERM", "HOSTNAME", "HOSTTYPE", "OSTYPE", "MACHTYPE", "PS1", "PS2"}
    | {"PS4", "OPTERR", "HISTFILE", "HISTSIZE", "COLUMNS", "LINES", "OLDPWD", "BASH_ARGV0"}
    | {"BASH_LOADABLES_PATH"}
)
"""Variables that the shell gives a value where nobody else does."""
_NOT_WRITTEN = frozenset({Means.INHERITED, Means.UNKNOWN})


def is_below(path: str, directory: str) -> bool:
    """Say whether a path lies below a directory."""
    return path.startswith(directory.rstrip("/") + "/")


@dataclass(frozen=True)
class MachineScope:
    """The scope of words at one moment."""

    machine: Machine
    state: State

    def value_of(self, name: str) -> str | None:
        """Return a variable's value; what the shell gives itself is not known."""
        if name == "BASH_SOURCE":
            return HOLE if self.is_sh() else self.script_path()
        variable = self.state.get(name)
        own = (
            name in ALWAYS_OWN
            or name in self.machine.asynchronous
            or (name in OWN_WHERE_UNSET and variable.value is None)
        )
        return HOLE if own or "array" in variable.attributes else variable.value

    def separators(self) -> str | None:
        """Return IFS: it is never inherited, and code that nobody sees rarely leaves it changed."""
        variable = self.state.get("IFS")
        untouched = {write.means for write in variable.writers} <= _NOT_WRITTEN
        value = DEFAULT_SEPARATORS if untouched or variable.value is None else variable.value
        return None if HOLE in value else value

    def hints_of(self, name: str) -> tuple[str, ...]:
        """Return the texts a variable was given."""
        writers = sorted(self.state.get(name).writers, key=lambda w: (w.path, w.line, w.offset))
        texts = [write.text for write in writers if write.text and write.text.strip(HOLE)]
        return tuple(texts) or tuple(self.machine.every_text.get(name, ()))

    def arguments(self) -> tuple[str, ...] | None:
        """Return the positional parameters."""
        return self.state.arguments

    def program(self) -> str:
        """Return $0 of the shell at hand."""
        return self.machine.program

    def script_path(self) -> str:
        """Return the path of the text at hand, as far as it is known."""
        return self.machine.reading.path or self.machine.program

    def directory(self) -> str:
        """Return the working directory; the one that a shell begins in has no links in its name."""
        directory = self.state.directory
        return self.real(directory) if directory == self.machine.begun_in else directory

    def is_sh(self) -> bool:
        """Say whether the script names `sh`."""
        return self.machine.is_sh

    def real(self, path: str) -> str:
        """Follow the links of the script itself, and of the directories it lies in."""
        for own in (self.script_path(), self.machine.path):
            real = self.machine.library.real(own)
            if real is not None and (path == own or (real == own and is_below(own, path))):
                return real if path == own else path
        return path if path == "/" else HOLE
