"""What ExecStart= adds: the program may be `env`, a shell with a script in a string, or a script.

The words of the line are read like those of a shell command, so that one reader of
command lines (`launches`) serves both.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetctl.environment.files import Files, read, resolved
from fleetctl.environment.shell.analysis import (
    MANAGER_GIVES,
    Analysis,
    Caller,
    analyse,
)
from fleetctl.environment.shell.command_line import CommandLine, Payload
from fleetctl.environment.shell.dataflow import (
    HOLE,
    NO_VARIABLE,
    Means,
    Variable,
    Write,
    may_be_given,
)
from fleetctl.environment.shell.launches import read_command
from fleetctl.environment.shell.observation import Library
from fleetctl.environment.shell.own_program import is_script, read_own_program
from fleetctl.environment.shell.parser import Parser, ScriptRejected
from fleetctl.environment.shell.tree import Word, bytes_of
from fleetctl.environment.shell.words import Field
from fleetctl.environment.systemd.syntax import with_specifiers, words
from fleetctl.environment.systemd.unit import Manager, Service
from fleetctl.errors import EditRefused

_PREFIXES = re.compile(r"[@\-:+!|]*")
_VARIABLE = re.compile(r"\$(\$|\{[A-Za-z_]\w*\})")


@dataclass(frozen=True)
class Start:
    """The command of a service.

    Attributes:
        value: the logical line, as it stands in the unit.
        path: the unit file it stands in.
        line: its line there.
        command: how it starts the server; None for a program of which nothing is known.
        script: path of the shell script it runs, "" where it runs none.
        program: how the command names the script.
        arguments: what the script gets.
        directory: the working directory.
        unread: path of a program that may be a shell script, "" where that is known.
    """

    value: str
    path: str
    line: int
    command: CommandLine | None
    script: str
    program: str
    arguments: tuple[str, ...] | None
    directory: str
    unread: str = ""


class FileLibrary(Library):
    """The files of a host, for scripts that source others."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def find(self, path: str) -> tuple[str, bytes] | None:
        """Return a file by its full path."""
        if not path.startswith("/") or HOLE in path:
            return None
        content = read(self.files, path)
        return None if content is None else (path, content)

    def has(self, directory: str) -> bool:
        """Say whether something is known to lie in a directory."""
        return bool(self.files.names(directory))

    def real(self, path: str) -> str | None:
        """Return a file's path with all symbolic links followed, None where it is not known."""
        return None if self.find(path) is None else resolved(self.files, path)


def start_of(files: Files, service: Service, manager: Manager) -> Start | None:
    """Return the last ExecStart= of a service, None where it has none."""
    if not service.starts:
        return None
    entry, path = service.starts[-1]
    fields = _fields(entry.value, service, manager)
    directory = service.directory or (manager.home or "/")
    own, unread = _own_script(files, fields, directory)
    command = own or (read_command(fields) if fields else None)
    program, arguments = _script(files, fields, command)
    return Start(
        value=entry.value,
        path=path,
        line=entry.line,
        command=command,
        script=program if program.startswith((HOLE, "/")) else _below(directory, program),
        program=program,
        arguments=arguments,
        directory=directory,
        unread=unread,
    )


def _own_script(
    files: Files, fields: list[Field], directory: str
) -> tuple[CommandLine | None, str]:
    """Return how the unit starts a program that is a shell script, or the path of an unread one."""
    own = read_own_program(fields) if fields else None
    if own is None or own.text is None or "/" not in own.text.text:
        return None, ""
    named = own.text.text
    path = named if named.startswith(("/", HOLE)) else _below(directory, named)
    content = read(files, path) if HOLE not in path else None
    if content is None:
        return None, path
    return own if is_script(content, by_shell=False) else None, ""


def _below(directory: str, program: str) -> str:
    """Return the full path of a script that is named from the working directory."""
    return posixpath.normpath(f"{directory}/{program}") if program and directory[0] == "/" else ""


def _fields(value: str, service: Service, manager: Manager) -> list[Field]:
    found = words(value)
    given = service.environment()
    if not found:
        return []
    lead = _PREFIXES.match(found[0].text)
    prefix = lead[0] if lead else ""
    skip = len(prefix)
    fields = []
    for number, word in enumerate(found):
        if number == 1 and "@" in prefix:
            continue
        start = word.start + (skip if number == 0 else 0)
        raw = word.text[skip:] if number == 0 else word.text
        text = with_specifiers(raw, service.unit, manager.home or "/root", system=manager.is_system)
        several = re.fullmatch(r"\$[A-Za-z_]\w*", text) is not None
        if ":" not in prefix:
            text = HOLE if several else _VARIABLE.sub(lambda each: _substituted(each, given), text)
        fields.append(Field(text, Word(start, word.end, ()), rest=several))
    return fields


def _substituted(found: re.Match[str], given: Mapping[str, str]) -> str:
    """Return what systemd puts for $$ or ${NAME}: nothing where no such variable is set."""
    if found[1] == "$":
        return "$"
    name = found[1].strip("{}")
    return given.get(name, HOLE if name in MANAGER_GIVES else "")


def _script(
    files: Files, fields: list[Field], command: CommandLine | None
) -> tuple[str, tuple[str, ...] | None]:
    if command is not None and command.payload is Payload.SCRIPT and command.text is not None:
        known = not any(HOLE in text for text in command.operands)
        return command.text.text, command.operands if known else None
    first = fields[0].text if fields else ""
    content = read(files, first) if first.startswith("/") and HOLE not in first else None
    if content is not None and is_script(content, by_shell=False):
        rest = [field.text for field in fields[1:]]
        return first, tuple(rest) if not any(HOLE in text for text in rest) else None
    return "", None


@dataclass(frozen=True)
class View:
    """What the server of a service sees.

    Attributes:
        analysis: of the script that starts it, None where there is none or it can't be read.
        opaque: why nothing can be said, "" where something can.
        absent: names that the unit takes away at the end.
    """

    start: Start | None
    environment: Mapping[str, str]
    analysis: Analysis | None
    script_text: str
    opaque: str
    absent: frozenset[str] = frozenset()

    def told(self, name: str) -> Variable:
        """Return what may be said of a variable: nothing where a program is not understood.

        An edit relies on `variable`, and the proof in the processes shows whether it was right.
        """
        if why := self._not_understood():
            write = Write(name, Means.UNKNOWN, why, "", 0, 0, HOLE)
            return Variable(HOLE, exported=None, writers=frozenset({write}))
        found = self.variable(name)
        if found.is_absent() and self._in_image():
            write = Write(name, Means.UNKNOWN, "the container's image", "", 0, 0, HOLE)
            return Variable(HOLE, exported=None, writers=frozenset({write}))
        return found

    def _in_image(self) -> bool:
        """Say whether a server starts in a container, where its image may set what nobody names."""
        lines = [self.start.command] if self.start is not None else []
        for launch in self.analysis.launches if self.analysis is not None else ():
            lines += [line for each in launch.observations for line in (each.line, each.outer)]
        return any(line is not None and line.imaged for line in lines)

    def _not_understood(self) -> str:
        unread = ""
        if self.analysis is None and self.script_text and self.opaque:
            return self.opaque
        if self.analysis is None and self.start is not None:
            unread = self.start.unread or ("" if self.script_text else self.start.script)
        elif self.analysis is not None and not self.analysis.starts_surely:
            unread = next(iter(self.analysis.unread), "")
            if not self.analysis.launches and not unread:
                return "the script starts no program that is known"
        for launch in self.analysis.launches if self.analysis is not None else ():
            if any(each.unsure for each in launch.observations):
                return f"what stands before the server in line {launch.line}"
        return f"{unread.replace(HOLE, '…')} is not known" if unread else ""

    def variable(self, name: str) -> Variable:
        """Return what the server sees of a variable."""
        if self.analysis is not None and self.analysis.launches:
            seen = [launch.variable(name) for launch in self.analysis.launches]
            joined = seen[0]
            for other in seen[1:]:
                joined = joined.join(other)
            handled = name in self.analysis.asynchronous
            return replace(joined, value=HOLE, exported=None) if handled else joined
        unknown = self.analysis is not None and self.opaque
        if unknown or re.search(rf"\b{re.escape(name)}\b", self.script_text):
            write = Write(name, Means.UNKNOWN, self.opaque or "the script", "", 0, 0, HOLE)
            return Variable(HOLE, exported=None, writers=frozenset({write}))
        found = variable_of_command(self.start, self.environment, name)
        cleared = self.start is not None and self.start.command and self.start.command.cleared
        given = name in MANAGER_GIVES - self.absent and not cleared
        return may_be_given(name) if found == NO_VARIABLE and given else found


def variable_of_command(start: Start | None, environment: Mapping[str, str], name: str) -> Variable:
    """Return what the command line itself lets through of a variable."""
    line = start.command if start else None
    if line is not None:
        own = [a for a in line.attached if a.name == name]
        if own and own[-1].text is not None:
            write = Write(name, own[-1].means, "ExecStart=", "", 0, 0, own[-1].text)
            return Variable(own[-1].text, exported=True, writers=frozenset({write}))
        barred = line.barrier and not line.crossable
        if not own and (line.loose or line.filed or barred or name in line.altered):
            return Variable(HOLE, exported=None, writers=frozenset())
        if not own and (line.cleared or name in line.removed):
            return NO_VARIABLE
    value = environment.get(name)
    if value is None:
        return NO_VARIABLE
    return Variable(value, exported=True, writers=frozenset())


def view(
    files: Files,
    parser: Parser,
    start: Start | None,
    environment: Mapping[str, str],
    absent: frozenset[str] = frozenset(),
) -> View:
    """Return what the server sees when the unit gives it an environment and takes names away."""
    content = script_content(files, start)
    text = content.decode("utf-8", "surrogateescape") if content is not None else ""
    if start is None or content is None:
        return View(start, environment, None, text, "", absent)
    try:
        found = analyse(
            content,
            parser,
            path=start.script,
            library=FileLibrary(files),
            caller=caller_of(start, environment, absent),
        )
    except (ScriptRejected, EditRefused) as error:
        return View(start, environment, None, text, str(error), absent)
    unknown = next(iter(found.unread), "")
    opaque = f"{unknown.replace(HOLE, '…')} is not known" if unknown and not found.launches else ""
    return View(start, environment, found, text, opaque, absent)


def caller_of(
    start: Start, environment: Mapping[str, str], absent: frozenset[str] = frozenset()
) -> Caller:
    """Return what a script of ExecStart= is started with."""
    names = set(environment)
    if start.command is not None:
        names |= {a.name for a in start.command.attached}
    seen = {name: variable_of_command(start, environment, name).value for name in names}
    known = {name: value for name, value in seen.items() if value is not None}
    return Caller(
        known,
        complete=True,
        directory=start.directory,
        arguments=start.arguments,
        absent=absent,
        program=start.program,
        options=start.command.shell_options if start.command is not None else None,
    )


def script_content(files: Files, start: Start | None) -> bytes | None:
    """Return the shell script that ExecStart= runs, from its file or its own string."""
    if start is None:
        return None
    if start.script:
        return read(files, start.script)
    line = start.command
    if line is not None and line.payload is Payload.SHELL and line.text is not None:
        return bytes_of(line.text.text)
    return None
