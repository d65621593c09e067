"""Files that the script itself writes before it sources or runs them: what lies there is old."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from fleetctl.environment.shell.dataflow import HOLE, State
from fleetctl.environment.shell.machine import Machine
from fleetctl.environment.shell.paths import moved
from fleetctl.environment.shell.tree import Redirect
from fleetctl.environment.shell.words import Field, value_of

_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_ONLY_READING = frozenset(
    {"cat", "grep", "egrep", "fgrep", "rg", "test", "[", "ls", "head", "tail", "wc", "stat", "file"}
    | {"chmod", "chown", "echo", "printf", ".", "source", "readlink", "realpath", "dirname", "awk"}
    | {"basename", "diff", "cmp", "sha256sum", "md5sum", "cut", "sort", "jq", "source", "mkdir"}
    | {"bash", "sh", "dash", "exec", "cd", "export", "xargs", "env", "nohup", "logger"}
)


def find(machine: Machine, path: str) -> tuple[str, bytes] | None:
    """Return a file that the script names, None where it is unknown, or was written meanwhile."""
    if path.startswith("/") and HOLE not in path and posixpath.normpath(path) in machine.written:
        return None
    return machine.library.find(path)


def note_redirects(machine: Machine, redirects: Sequence[Redirect], state: State) -> None:
    """Remember the files that redirections write."""
    scope = machine.scope(state)
    for redirect in redirects:
        if redirect.operator in _WRITING and redirect.word is not None:
            machine.written.add(moved(state.directory, value_of(redirect.word, scope)))


def note_arguments(machine: Machine, items: Sequence[Field], state: State) -> None:
    """Remember the files that a command may write: those it names, unless it only reads."""
    name = posixpath.basename(items[0].text)
    in_place = any(item.text.startswith(("-i", "--in-place")) for item in items)
    if name in _ONLY_READING or (name == "sed" and not in_place):
        return
    for item in items[1:]:
        for text in (item.text, item.text.partition("=")[2]):
            if text and text != "/":
                machine.written.add(moved(state.directory, text))
