"""What a serve script does: its server launches, and what each of them sees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from fleetctl.environment.quoting import Inside
from fleetctl.environment.shell.build import parse
from fleetctl.environment.shell.command_line import Payload
from fleetctl.environment.shell.dataflow import (
    HOLE,
    NO_VARIABLE,
    SHELL_GIVES,
    State,
    Variable,
    inherited,
    may_be_given,
)
from fleetctl.environment.shell.interpret import Interpreter
from fleetctl.environment.shell.machine import Machine, TooEntangled
from fleetctl.environment.shell.observation import Library, NoFiles, Observation, Reading
from fleetctl.environment.shell.own_program import (
    begin,
    interpreter_of,
    options_of,
)
from fleetctl.environment.shell.parser import Parser
from fleetctl.environment.shell.tree import Script, text_of
from fleetctl.errors import EditRefused


@dataclass(frozen=True)
class Caller:
    """What the script is started with.

    Attributes:
        variables: values that are known.
        complete: there are no others but those that systemd gives; else any other may be set.
        absent: names that are surely not set.
        program: $0, "" where it is the script's full path.
        options: letters of its shell's options, None where the script's first line has them.
        directory: the working directory, "" where unknown.
        arguments: the positional parameters, None where they are unknown.
    """

    variables: Mapping[str, str]
    complete: bool
    directory: str = ""
    arguments: tuple[str, ...] | None = None
    absent: frozenset[str] = frozenset()
    program: str = ""
    options: str | None = None


MANAGER_GIVES = frozenset(
    {"PATH", "LANG", "USER", "LOGNAME", "HOME", "SHELL", "TERM", "INVOCATION_ID", "JOURNAL_STREAM"}
    | {"SYSTEMD_EXEC_PID", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "MAINPID", "PIDFILE"}
    | SHELL_GIVES
    | {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "CREDENTIALS_DIRECTORY", "MANAGERPID"}
    | {"RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY"}
    | {"CONFIGURATION_DIRECTORY", "XDG_RUNTIME_DIR", "MEMORY_PRESSURE_WATCH", "LANGUAGE"}
    | {"MEMORY_PRESSURE_WRITE", "FDSTORE", "DEBUG_INVOCATION", "REMOTE_ADDR", "REMOTE_PORT"}
    | {"TRIGGER_UNIT", "TRIGGER_PATH", "TRIGGER_TIMER_REALTIME_USEC"}
    | {"TRIGGER_TIMER_MONOTONIC_USEC"}
    | {f"LC_{n}" for n in ("ALL", "CTYPE", "MESSAGES", "NUMERIC", "TIME", "COLLATE", "MONETARY")}
    | {f"LC_{n}" for n in ("PAPER", "NAME", "ADDRESS", "TELEPHONE", "MEASUREMENT")}
    | {"LC_IDENTIFICATION"}
)
"""Variables that systemd, or the shell of a script, may give beside those of the unit.

Source: systemd.exec(5), "Environment Variables in Spawned Processes".
"""
ANYBODY = Caller({}, complete=False)
"""A caller about whom nothing is known."""


@dataclass(frozen=True)
class Launch:
    """One command that starts a server.

    Attributes:
        path: the file it stands in, "" for the script itself.
        start: its offset there.
        line: its line there.
        text: its words.
        observations: one per way through the script.
    """

    path: str
    start: int
    line: int
    text: str
    observations: tuple[Observation, ...]

    def variable(self, name: str) -> Variable:
        """Return what the server sees of a variable, over all ways."""
        return reduce(Variable.join, (seen.variable(name) for seen in self.observations))

    def constants(self, name: str) -> frozenset[str]:
        """Return the values that the server surely sees on some way."""
        values = (seen.variable(name).value for seen in self.observations)
        return frozenset(v for v in values if v is not None and HOLE not in v)


@dataclass(frozen=True)
class Analysis:
    """Everything about a script that edits and explanations need.

    Attributes:
        launches: in the order of the text.
        pairs: offsets of two launches where the second may follow the first in one run.
        asynchronous: names that a signal handler may write at any time.
        opened: paths the script sources or runs, whether known or not.
        unread: those of them that nobody knows, and programs that may start the server unseen.
        end: the variables at the end of the script, None where it never gets there.
        names: every variable that the script itself writes.
        functions: names of the functions it defines.
        aliases: names of its aliases.
    """

    script: Script
    launches: tuple[Launch, ...]
    pairs: frozenset[tuple[int, int]]
    asynchronous: frozenset[str]
    opened: tuple[str, ...]
    unread: tuple[str, ...]
    end: State | None
    names: frozenset[str]
    functions: frozenset[str]
    aliases: frozenset[str]

    @property
    def starts_surely(self) -> bool:
        """Say whether a server was recognised as one."""
        seen = (each for launch in self.launches for each in launch.observations)
        return any(each.line.payload is not Payload.POSSIBLE for each in seen)


def analyse(
    content: bytes,
    parser: Parser,
    *,
    path: str = "",
    library: Library | None = None,
    caller: Caller = ANYBODY,
) -> Analysis:
    """Interpret a script without running anything of it.

    Args:
        content: the script.
        parser: shfmt.
        path: where it lies, so that `$(dirname "$0")` means something.
        library: other files it may source or run.
        caller: what it is started with.

    Raises:
        ScriptRejected: shfmt can't parse it.
        EditRefused: it has too many ways through it.
    """
    try:
        return _analysed(content, parser, path, library or NoFiles(), caller)
    except (TooEntangled, RecursionError) as error:
        raise EditRefused(
            "the script is too entangled to be followed",
            code="unsupported",
            why="the number of ways through it exceeds every bound",
            next_step="set the flag in the unit, or in a small script around this one",
        ) from error


def _analysed(
    content: bytes, parser: Parser, path: str, library: Library, caller: Caller
) -> Analysis:
    script = parse(content, parser)
    machine = Interpreter(
        parser=parser,
        library=library,
        reading=Reading(script, "", Inside.SCRIPT),
        path=path,
        program=caller.program or path or HOLE,
        begun_in=caller.directory or HOLE,
        is_sh=interpreter_of(content) == "sh",
        last_pipe=b"lastpipe" in content,
        aliases_on=b"expand_aliases" in content or b"posix" in content.lower(),
        may_be_posix=b"posix" in content.lower(),
    )
    machine.define_functions(machine.reading)
    end = machine.run_list(script.body, _initial(caller, content))
    return Analysis(
        script=script,
        launches=_launches(machine),
        pairs=frozenset(machine.pairs),
        asynchronous=frozenset(machine.asynchronous),
        opened=tuple(dict.fromkeys(machine.opened)),
        unread=tuple(dict.fromkeys(machine.unread)),
        end=end,
        names=frozenset(machine.every_text),
        functions=frozenset(machine.functions),
        aliases=frozenset(machine.aliases),
    )


def _initial(caller: Caller, content: bytes) -> State:
    fallback = NO_VARIABLE if caller.complete else may_be_given("")
    state = State(
        variables={
            **{name: may_be_given(name) for name in MANAGER_GIVES - caller.absent},
            **{
                name: Variable(value, exported=True, writers=frozenset({inherited(name, value)}))
                for name, value in caller.variables.items()
            },
        },
        fallback=fallback,
        directory=caller.directory or HOLE,
        arguments=caller.arguments,
    )
    begin(state, options_of(content) if caller.options is None else caller.options)
    return state


def _launches(machine: Machine) -> tuple[Launch, ...]:
    seen = machine.observations
    sure = [o for o in seen if o.line.payload is not Payload.POSSIBLE]
    if sure:
        seen = [o for o in seen if o.line.payload is not Payload.POSSIBLE or o.handed]
    grouped: dict[tuple[str, int, int], list[Observation]] = {}
    for observation in seen:
        key = (observation.reading.path, observation.outer_command.start, observation.command.start)
        grouped.setdefault(key, []).append(observation)
    return tuple(_launch(group) for _, group in sorted(grouped.items(), key=lambda item: item[0]))


def _launch(group: list[Observation]) -> Launch:
    first = group[0]
    start = first.command.start
    raw = first.reading.raw(start, first.command.end)
    return Launch(
        path=first.reading.path,
        start=start,
        line=first.reading.line_of(start),
        text=re.sub(r"\\\n\s*", "", text_of(raw)),
        observations=tuple(group),
    )
