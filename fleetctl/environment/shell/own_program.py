"""Programs of the site: one that nobody knows by name may be a shell script without `.sh`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import basename

from fleetctl.environment.shell.command_line import CommandLine, Reader
from fleetctl.environment.shell.dataflow import HOLE, Means, State, Variable, may_be_given
from fleetctl.environment.shell.launches import only_names, step
from fleetctl.environment.shell.programs import DATA, PROGRAMS, SHELLS, TRANSPARENT
from fleetctl.environment.shell.scope import ALWAYS_OWN, OWN_WHERE_UNSET
from fleetctl.environment.shell.servers import is_server
from fleetctl.environment.shell.words import Field

_KNOWN = DATA | TRANSPARENT | SHELLS | PROGRAMS.keys()
_INTERPRETER = re.compile(r"(python|pypy|node|perl|ruby|java|php|Rscript)[\d.]*")
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where systemd looks for programs, and with it a script that is given no other PATH."""


def interpreter_of(content: bytes) -> str:
    """Return the program that the first line names: `bash`, `sh`, another, or ""."""
    first = content.split(b"\n", 1)[0]
    if not first.startswith(b"#!"):
        return ""
    words = first[2:].decode("latin-1").split()
    while words and (
        words[0].rpartition("/")[2] == "env" or words[0].startswith("-") or "=" in words[0]
    ):
        words.pop(0)
    name = words[0].rpartition("/")[2] if words else ""
    return "sh" if name in ("sh", "dash", "ash") else name


def options_of(content: bytes) -> str:
    """Return the letters of the options that the first line gives its shell."""
    found = re.match(rb"#!\s*\S*sh((?:\s+-\w+)*)\s*$", content.split(b"\n", 1)[0])
    return found[1].decode("latin-1") if found else ""


def begin(state: State, options: str) -> None:
    """Put a state as a shell with some options begins: -a exports, -l reads a profile."""
    state.export_all = "a" in options
    for name in ALWAYS_OWN | OWN_WHERE_UNSET if state.export_all else ():
        if state.get(name).value is None:
            state.put(name, may_be_given(name))
    if "l" in options or "i" in options:
        state.forget("the profile of a login shell", 0, "")


def is_script(content: bytes, *, by_shell: bool) -> bool:
    """Say whether bash or sh runs a program; a shell also runs a text without a first line."""
    program = interpreter_of(content)
    text = program == "" and not content.startswith(b"#!") and b"\0" not in content[:128]
    return program in ("bash", "sh") or (by_shell and text)


def read_own_program(fields: Sequence[Field]) -> CommandLine | None:
    """Return how a command starts a program of the site, None where it starts another one."""
    reader = Reader(tuple(fields))
    position = 0
    while position < len(reader.fields):
        if position == reader.command_at:
            program = basename(reader.at(position))
            if only_names(reader, program, position) or is_server(reader.fields, position):
                return None
            if _is_own(reader, position):
                reader.run_script(position)
                return reader.result(reader.payload) if reader.payload else None
        elif is_server(reader.fields, position):
            return None
        position = step(reader, basename(reader.at(position)), position)
        if reader.payload is not None:
            return None
    return None


def _is_own(reader: Reader, position: int) -> bool:
    text = reader.at(position)
    program = basename(text)
    named = text.strip(HOLE) != "" and not text.startswith("-") and "=" not in text
    searched = "/" in text or reader.executed
    return named and searched and program not in _KNOWN and not _INTERPRETER.fullmatch(program)


def is_interpreted(fields: Sequence[Field]) -> bool:
    """Say whether a command runs a program in another language: `"$PY" x.py`, `python -m x`."""
    for first, second in zip(fields, [*fields[1:], None], strict=True):
        program = basename(first.text)
        follows = second is not None and (second.text == "-m" or second.text.endswith(".py"))
        if _INTERPRETER.fullmatch(program) or (follows and not first.text.startswith("-")):
            return True
    return False


def searched(name: str, state: State) -> tuple[str, ...]:
    """Return the paths at which the shell looks for a name without a slash, in order.

    The list ends at a directory that can't be told: what lies behind may not be what is found.
    """
    found: list[str] = []
    for directory in _search_path(state.get("PATH")):
        found.append(f"{directory.rstrip('/')}/{name}")
        if HOLE in directory:
            break
    return tuple(dict.fromkeys(found))


def _search_path(path: Variable) -> Iterator[str]:
    """Yield the directories of PATH; a hole is the PATH of systemd where nothing else wrote it."""
    seen = {write.means for write in path.writers | path.earlier}
    usual = iter(() if Means.UNKNOWN in seen else _USUAL_PATH.split(":"))
    for directory in (path.value or HOLE).split(":"):
        if directory != HOLE:
            yield directory if directory.startswith("/") else HOLE
            continue
        given = list(usual)  # the second hole is something else
        yield from given or [HOLE]
