"""Commands to paste from a hint: as this process was called, with the places it was given."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest

_COMMAND = re.compile(r"`fleetctl (\w[^`]*)`")
_PASSWORD = re.compile(r"(://[^/@:]*):[^/]*@")
# which commands take the option that a process was called with
_OF_A_SPEC = frozenset({"run", "plan", "aa", "bisect", "minimize", "matrix"})
_MEASURE = {"run", "resume", "plan", "aa", "matrix", "bisect", "minimize", "worker"}
PLACES = {
    "--inventory": _MEASURE | {"status", "rollback", "unlock", "forget"},
    "--runs": _MEASURE | {"results", "reclassify", "status", "rollback"},
}
_ONLY_ASKED = {"env"}  # takes an inventory, too, and no hint leads there


def typed() -> str:
    """Return the command line of this process, quoted for a shell, without passwords in URLs."""
    return shlex.join(["fleetctl", *(_PASSWORD.sub(r"\1:***@", word) for word in sys.argv[1:])])


def as_here(text: str) -> str:
    """Return a text whose commands look where this process was told to look.

    `fleetctl resume R` would go to another inventory otherwise, or find no such run.
    """
    return _COMMAND.sub(lambda found: f"`fleetctl {_placed(found[1])}`", text)


def _placed(command: str) -> str:
    words = command.split()
    if words == sys.argv[1:2] and words[0] in _OF_A_SPEC:  # the same once more, spec and all
        return typed().partition(" ")[2]
    for option, value in _given(sys.argv[1:]):
        if words[0] in PLACES[option] and not any(w.split("=")[0] == option for w in words):
            command += f" {option} {shlex.quote(value)}"
    return command


def _given(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the places that a command line names, the last of each.

    Of a command that takes them: `power --runs 3` is a number of runs.
    """
    found: dict[str, str] = {}
    for word, following in zip_longest(argv, argv[1:], fillvalue=""):
        option, _, value = word.partition("=")
        if option in PLACES and argv[0] in PLACES[option] | _ONLY_ASKED:
            found[option] = value or following
    yield from found.items()
