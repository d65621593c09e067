"""The drop-in and the environment file that fleetctl owns.

A drop-in is read in the order of its file name, so ours is named to come last. It is
a plain list of assignments; lines about other variables stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.environment.quoting import unit_quoted
from fleetctl.environment.shell.tree import bytes_of, text_of
from fleetctl.environment.systemd.syntax import entries, words
from fleetctl.environment.systemd.unit import Setting

HEADER = "# managed by fleetctl"
OWN_NAME = re.compile(r"(90|z+)-fleetctl\.conf")


@dataclass(frozen=True)
class DropIn:
    """The lines of our drop-in, its header left out."""

    lines: tuple[str, ...] = ()

    @classmethod
    def parse(cls, content: bytes | None) -> DropIn:
        """Return what an existing drop-in holds; keeps every line of [Service] as it is."""
        text = text_of(content or b"").removeprefix("\ufeff")
        kept = [line for line in text.split("\n") if line not in (HEADER, "[Service]", "")]
        return cls(tuple(kept))

    def content(self) -> bytes | None:
        """Return the file, None where it would say nothing."""
        if not self.lines:
            return None
        return bytes_of("\n".join((HEADER, "[Service]", *self.lines)) + "\n")

    def with_value(self, name: str, value: str) -> DropIn:
        """Set a variable, where it stood before if it did."""
        line = f"Environment={unit_quoted(f'{name}={value}')}"
        places = [i for i, old in enumerate(self.lines) if _assigned(old) == [name]]
        if places:
            lines = list(self.lines)
            lines[places[0]] = line
            kept = [x for i, x in enumerate(lines) if i not in places[1:]]
            return DropIn(tuple(kept)).without_unset(name)
        return self.without(name).appended(line)

    def without(self, name: str) -> DropIn:
        """Forget a variable."""
        kept = [line for line in self.lines if _assigned(line) != [name]]
        return DropIn(tuple(kept)).without_unset(name)

    def without_unset(self, name: str) -> DropIn:
        """Stop taking a variable away."""
        return DropIn(tuple(line for line in self.lines if _unset(line) != [name]))

    def with_unset(self, name: str) -> DropIn:
        """Take a variable away, whoever sets it."""
        if f"UnsetEnvironment={name}" in self.lines:
            return self
        return self.without(name).appended(f"UnsetEnvironment={name}")

    def with_unset_anew(self, kept: Sequence[Setting]) -> DropIn:
        """Replace the whole list of variables that are taken away."""
        others = [line for line in self.lines if not line.startswith("UnsetEnvironment=")]
        again = []
        for item in kept:
            word = item.name if item.value is None else unit_quoted(f"{item.name}={item.value}")
            again.append(f"UnsetEnvironment={word}")
        return DropIn((*others, "UnsetEnvironment=", *dict.fromkeys(again)))

    def with_file(self, path: str) -> DropIn:
        """Read an environment file after all others."""
        line = f"EnvironmentFile={path.replace('%', '%%')}"
        return self if line in self.lines else self.appended(line)

    def with_start(self, value: str) -> DropIn:
        """Replace the command."""
        others = [line for line in self.lines if not line.startswith("ExecStart=")]
        return DropIn((*others, "ExecStart=", f"ExecStart={value}"))

    def appended(self, line: str) -> DropIn:
        """Add a line at the end."""
        return replace(self, lines=(*self.lines, line))


def _assigned(line: str) -> list[str]:
    return _names(line, "Environment")


def _unset(line: str) -> list[str]:
    return _names(line, "UnsetEnvironment")


def _names(line: str, key: str) -> list[str]:
    found = [e for e in entries(bytes_of(f"[Service]\n{line}")) if e.key == key]
    return [word.text.partition("=")[0] for e in found for word in words(e.value)]


def own_name(foreign: Sequence[str]) -> str:
    """Return a file name that is read after all others."""
    name = "90-fleetctl.conf"
    letters = "zz"
    while any(other > name for other in foreign):
        name = f"{letters}-fleetctl.conf"
        letters += "z"
    return name


Step = Callable[[DropIn], DropIn]
