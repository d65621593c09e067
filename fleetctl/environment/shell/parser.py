"""The only effects of this package: shfmt turns a script into a tree, bash says whether it agrees.

Neither program executes anything of the script.
"""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from fleetctl.errors import InternalError

JsonTree: TypeAlias = dict[str, Any]

# bash takes a carriage return or a byte beyond ASCII for an ordinary character of a word, but not
# for one of a name; shfmt treats DEL the same way and counts it as one byte. A NUL stands for what
# can't be told of a text that was put together.
ORDINARY = b"\x7f"
_UNLIKE_SHFMT = re.compile(rb"[\0\r\x80-\xff]")
_LOCATION = re.compile(r"(\d+):(\d+): (.*)")
_BRACKET = "must be followed by"
_MOST_BRACKETS = 200
_DEADLINE_S = 60.0
_REMEMBERED = 128


class ScriptRejected(Exception):
    """A parser does not accept the text.

    Attributes:
        line: 1-based line it complained about, 0 where unknown.
        complaint: its own words.
    """

    def __init__(self, line: int, complaint: str) -> None:
        super().__init__(complaint)
        self.line = line
        self.complaint = complaint


class Parser(Protocol):
    """What the pure part of this package needs to know about a script."""

    def tree(self, content: bytes) -> JsonTree:
        """Return shfmt's tree, whose offsets count the bytes of `content`.

        Raises:
            ScriptRejected: shfmt does not accept it.
        """
        ...

    def check(self, content: bytes) -> None:
        """Ask bash itself.

        Raises:
            ScriptRejected: bash does not accept it.
        """
        ...

    def pretty(self, content: bytes) -> bytes:
        """Return the script as bash understood it, printed by bash.

        Raises:
            ScriptRejected: bash does not accept it.
        """
        ...


@dataclass(frozen=True)
class SystemParser:
    """shfmt (a Python package brings the binary) and the bash on PATH."""

    shfmt: str
    bash: str = "bash"

    def tree(self, content: bytes) -> JsonTree:
        """Return shfmt's tree; what shfmt reads otherwise than bash is masked for it.

        These are array words that begin with a bracket, and a backslash that ends a comment.
        """
        masked = bytearray(_UNLIKE_SHFMT.sub(ORDINARY, content))
        for _ in range(_MOST_BRACKETS):
            done = _run((self.shfmt, "-ln=bash", "--to-json"), bytes(masked))
            if done.returncode == 0:
                parsed: JsonTree = json.loads(done.stdout)
                continued = _continued_comments(parsed, masked)
                if not continued:
                    return parsed
                for offset in continued:
                    masked[offset : offset + 1] = ORDINARY
                continue
            line, column, complaint = _located(done.stderr.decode("utf-8", "replace"))
            offset = _offset(masked, line, column)
            if _BRACKET not in complaint or masked[offset : offset + 1] != b"[":
                raise ScriptRejected(line, complaint)
            masked[offset : offset + 1] = ORDINARY
        raise ScriptRejected(0, "too many array words that begin with a bracket")

    def check(self, content: bytes) -> None:
        """Ask `bash -n`, and once more with extended globs, which a script may switch on itself."""
        first = _run((self.bash, "-n"), content)
        if first.returncode == 0:
            return
        if _run((self.bash, "-O", "extglob", "-n"), content).returncode == 0:
            return
        complaint = first.stderr.decode("utf-8", "replace").strip().splitlines()[:1]
        where = re.search(r"line (\d+): (.*)", complaint[0]) if complaint else None
        raise ScriptRejected(
            int(where[1]) if where else 0, where[2] if where else "".join(complaint)
        )

    def pretty(self, content: bytes) -> bytes:
        """Return what `bash --pretty-print` makes of it."""
        done = _run((self.bash, "--pretty-print", "-O", "extglob"), content)
        if done.returncode != 0:
            raise ScriptRejected(0, done.stderr.decode("utf-8", "replace").strip())
        return done.stdout


def system_parser() -> SystemParser:
    """Return the parser of this installation.

    Raises:
        InternalError: the package shfmt-py is not installed beside fleetctl.
    """
    program = Path(sysconfig.get_path("scripts")) / "shfmt"
    if not program.exists():
        raise InternalError(
            "shfmt is missing",
            why=f"there is no {program}",
            next_step="install fleetctl with its dependencies (the package is shfmt-py)",
        )
    return SystemParser(shfmt=str(program))


# The same text is asked for again and again: by each arm, for each flag, before and after an edit.
@lru_cache(maxsize=_REMEMBERED)
def _run(command: tuple[str, ...], content: bytes) -> subprocess.CompletedProcess[bytes]:
    # An empty environment: BASH_ENV would be executed, and a locale would change what a blank is.
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
    try:
        return subprocess.run(
            command,
            input=content,
            capture_output=True,
            env=environment,
            timeout=_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ScriptRejected(0, f"{command[0]} took longer than {_DEADLINE_S:.0f} s") from error


def _continued_comments(tree: JsonTree, content: bytearray) -> list[int]:
    """Return the backslashes at the ends of comments, where shfmt, unlike bash, reads on."""
    found = []
    for start, _ in comment_spans(tree):
        newline = content.find(b"\n", start)
        last = (newline if newline >= 0 else len(content)) - 1
        if content[last : last + 1] == b"\\":
            found.append(last)
    return found


def comment_spans(root: object) -> Iterator[tuple[int, int]]:
    """Yield where the comments of a tree begin and end."""
    pending: list[object] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            if "Hash" in node and "Text" in node:
                yield node["Hash"]["Offset"], node["End"]["Offset"]
            else:
                pending.extend(v for v in node.values() if isinstance(v, dict | list))


def _located(message: str) -> tuple[int, int, str]:
    found = _LOCATION.search(message)
    return (int(found[1]), int(found[2]), found[3]) if found else (0, 0, message.strip())


def _offset(content: bytes | bytearray, line: int, column: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = content.find(b"\n", start) + 1
    return start + max(column - 1, 0)
