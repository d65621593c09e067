"""Which commands start a server, and what stands between the shell and it.

`env`, `docker run`, `sudo` and the like decide what reaches the server: a command line
is read from the left up to the server, and every program on the way says what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from posixpath import basename

from fleetctl.environment.shell.command_line import (
    ASSIGNMENT,
    Attached,
    CommandLine,
    Payload,
    Reader,
)
from fleetctl.environment.shell.dataflow import Means
from fleetctl.environment.shell.programs import DATA, OPTION, PROGRAMS, SHELLS, TRANSPARENT
from fleetctl.environment.shell.servers import is_server, names_server
from fleetctl.environment.shell.words import Field


def read_command(fields: Sequence[Field]) -> CommandLine | None:
    """Return how the command starts a server, or None for a command that starts none."""
    reader = Reader(tuple(fields))
    position = 0
    while position < len(reader.fields):
        program = basename(reader.at(position))
        if position == reader.command_at and only_names(reader, program, position):
            return None
        if is_server(reader.fields, position):
            return reader.result(Payload.SERVER)
        reader.note_expansion(position)
        position = step(reader, program, position)
        if reader.payload is not None:
            return reader.result(reader.payload)
    return _without_server(reader)


def only_names(reader: Reader, program: str, position: int) -> bool:
    """Say whether what follows is data: a server's name there starts nothing."""
    asks = program == "command" and reader.at(position + 1) in ("-v", "-V")
    return program in DATA or asks


def _without_server(reader: Reader) -> CommandLine | None:
    """Judge a command in which no server can be seen."""
    if reader.barrier and any(names_server(field.text) for field in reader.fields):
        return reader.result(Payload.STRING)
    if reader.container or reader.executed or reader.fields[0].rest:
        return reader.result(Payload.POSSIBLE)
    return None


def step(reader: Reader, program: str, position: int) -> int:
    """Go past the word at `position`, and past its own arguments where it is a known program."""
    known = PROGRAMS.get(program)
    here = position == reader.command_at
    if known and (here or program in SHELLS or program == "env"):
        reader.command_at = known(reader, position)
        return reader.command_at
    if known:
        reader.block(f"{program} stands between it and the shell")
    if here and program in TRANSPARENT:
        position += 1
        while OPTION.match(reader.at(position)):
            position += 1
        reader.command_at = position
        return position
    return _unknown(reader, position)


def _unknown(reader: Reader, position: int) -> int:
    """A word of no known program: an option, or a wrapper of the site."""
    text = reader.at(position)
    rest = range(position + 1, len(reader.fields))
    if position == reader.command_at and text.endswith((".sh", ".bash")):
        if not any(is_server(reader.fields, i) for i in rest):
            reader.run_script(position)
        return position + 1
    if position > 0 and text in ("-e", "--env") and ASSIGNMENT.fullmatch(reader.at(position + 1)):
        # A script of the site that hands -e on to a container.
        reader.attach(position + 1, Means.CONTAINER_OPTION, option=position)
        reader.barrier = f"{reader.at(0) or 'the wrapper'} passes its own list of variables"
        return position + 2
    if position > reader.command_at and ASSIGNMENT.fullmatch(text):
        # NAME=value behind a program that is not known: it may be `env` by another name.
        item = replace(reader.fields[position], alone=False)
        reader.attached.append(Attached(*text.partition("=")[::2], item, Means.ENV_ARGUMENT))
    return position + 1
