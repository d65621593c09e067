"""Scripts inside the script: eval, source, trap, `bash -c`, and the start of servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.environment.quoting import Inside
from fleetctl.environment.shell.build import parse
from fleetctl.environment.shell.command_line import Attached, CommandLine, Payload
from fleetctl.environment.shell.dataflow import (
    HOLE,
    SHELL_GIVES,
    Means,
    State,
    Write,
    may_be_given,
)
from fleetctl.environment.shell.definitions import readonly_names
from fleetctl.environment.shell.launches import read_command
from fleetctl.environment.shell.machine import Machine
from fleetctl.environment.shell.observation import Observation, Reading, seen
from fleetctl.environment.shell.own_program import (
    begin,
    is_interpreted,
    is_script,
    options_of,
    read_own_program,
    searched,
)
from fleetctl.environment.shell.parser import ScriptRejected
from fleetctl.environment.shell.rewritten import find
from fleetctl.environment.shell.tree import (
    DoubleQuoted,
    Literal,
    Parameter,
    Redirect,
    Simple,
    SingleQuoted,
    Word,
    bytes_of,
)
from fleetctl.environment.shell.words import Field, arguments_of, is_quoted, value_of


def run_eval(machine: Machine, command: Simple, items: list[Field], state: State) -> State | None:
    """Interpret `eval`."""
    text = " ".join(item.text for item in items)
    literal = len(items) == 1 and items[0].alone
    reading = _opened(machine, _text_of_word(items[0].word, text) if literal else Text(text))
    if reading is not None:
        with machine.read(reading):
            after = machine.run_list(reading.script.body, state)
        if after is not None and HOLE in text and not text.startswith("set -- "):
            machine.forget(after, "eval", command.start)
        return after
    line = read_command([f for item in items for f in _split(item)]) if items else None
    if line is not None and line.payload in (Payload.SERVER, Payload.SHELL):
        observe(machine, command, replace(line, attached=()), state, hidden=(text,))
    machine.forget(state, "eval", command.start)
    return state


def _split(item: Field) -> list[Field]:
    return [Field(text, item.word, alone=False) for text in item.text.split()]


def run_file(machine: Machine, command: Simple, items: list[Field], state: State) -> State | None:
    """Interpret `source FILE`."""
    paths = _sourced_paths(machine, items[0].text, state) if items else (HOLE,)
    shown = items[0].text.replace(HOLE, "…") if items else "?"
    found = _first(machine, paths)
    reading = machine.open_text(found[1], found[0]) if found else None
    if reading is None:
        machine.forget(state, f"source {shown}", command.start)
        _mark_readonly(machine, items, state)
        return state
    before = state.arguments
    if len(items) > 1:
        state.arguments = arguments_of(items[1:])
    with machine.read(reading):
        after = machine.run_sourced(reading.script.body, state)
    if after is not None:
        after.arguments = before
    return after


def _first(machine: Machine, paths: Sequence[str]) -> tuple[str, bytes] | None:
    """Return the first of some files that is known; all of them are asked for."""
    machine.opened += paths
    found = next((each for path in paths if (each := find(machine, path))), None)
    if found is None:
        machine.unread.append(paths[-1] if paths else HOLE)
    return found


def _sourced_paths(machine: Machine, path: str, state: State) -> tuple[str, ...]:
    """Return where `source` looks: for a name without a slash on PATH first, as bash does.

    What keeps to POSIX does not look into the working directory.
    """
    here = _full_path(path, state)
    if "/" in path or HOLE in path:
        return (here,)
    return searched(path, state) + (() if machine.is_sh or machine.may_be_posix else (here,))


def _full_path(path: str, state: State) -> str:
    if path.startswith(("/", HOLE)):
        return path
    return f"{state.directory.rstrip('/')}/{path.removeprefix('./')}"


def _mark_readonly(machine: Machine, items: list[Field], state: State) -> None:
    """Believe the worst of a file that may be the one sourced: what it makes readonly stays so.

    Where the working directory is not known, a relative path most likely starts beside the script.
    """
    path, own = items[0].text if items else HOLE, machine.scope(state).script_path()
    if path.startswith("/") or HOLE in path or not own.startswith("/"):
        return
    found = machine.library.find(f"{own.rpartition('/')[0]}/{path.removeprefix('./')}")
    try:
        script = parse(found[1], machine.parser, base=0) if found else None
    except ScriptRejected:
        return
    for name in sorted(readonly_names(script.body)) if script else ():
        state.mark(name, attributes={"readonly"})


def note_trap(machine: Machine, command: Simple, items: list[Field], state: State) -> None:
    """Interpret `trap`: the handler may run at any later moment."""
    words = [item for item in items if item.text not in ("--", "-p", "-l")]
    if len(words) < 2 or words[0].text in ("", "-") or HOLE in words[0].text:
        return
    handler = words[0]
    alone = handler.alone
    text = _text_of_word(handler.word, handler.text) if alone else Text(handler.text)
    reading = _opened(machine, text)
    if reading is None:
        return
    signals = {item.text.upper().removeprefix("SIG") for item in words[1:]}
    probe = state.copy()
    with machine.read(reading):
        after = machine.run_apart(reading.script.body, probe.copy())
        later = state.copy()
        later.forget("whatever ran before the signal", 0, "")
        machine.run_apart(reading.script.body, later)
    if after is not None and signals - {"EXIT", "0"}:
        changed = {n for n in after.variables if after.get(n) != probe.get(n)}
        machine.asynchronous.update(changed)


# ---- programs


def run_program(
    machine: Machine,
    command: Simple,
    redirects: Sequence[Redirect],
    items: list[Field],
    inner: State,
) -> None:
    """Interpret a program: it may start a server, or a shell with a script of its own."""
    own = read_own_program(items)
    found = _first(machine, _program_paths(own, inner)) if own is not None else None
    if own is not None and found is not None and is_script(found[1], by_shell=True):
        reading = machine.open_text(found[1], found[0])
        if reading is not None:
            _run_child(machine, command, own, reading, inner)
            return
    line = read_command(items)
    if line is None:
        return
    if line.payload is Payload.POSSIBLE and found is None and _is_unseen(line, items):
        machine.unread.append(items[-1].text if own is None or own.text is None else own.text.text)
    if line.payload is Payload.SHELL:
        _shell_text(machine, command, redirects, line, inner)
    elif line.payload is Payload.SCRIPT:
        _shell_script(machine, command, line, inner)
    else:
        observe(machine, command, line, inner)


def _program_paths(own: CommandLine, inner: State) -> tuple[str, ...]:
    name = own.text.text if own.text else HOLE
    return (_full_path(name, inner),) if "/" in name else searched(name, inner)


def _is_unseen(line: CommandLine, items: Sequence[Field]) -> bool:
    """Say whether what `exec` starts may be a script, with exports of its own."""
    return not line.argument_form.startswith("-e") and not is_interpreted(items)


def _shell_text(
    machine: Machine,
    command: Simple,
    redirects: Sequence[Redirect],
    line: CommandLine,
    inner: State,
) -> None:
    content = _shell_content(machine, redirects, line, inner)
    if content is None:
        return
    reading = _opened(machine, content)
    if reading is not None:
        _run_child(machine, command, line, reading, inner)
        return
    pieces = re.split(r"[;&|\n]+", content.content)
    hints = [read_command(_split(Field(piece, command.words[0]))) for piece in pieces if piece]
    found = next((hint for hint in hints if hint is not None), None)
    if found is not None:
        merged = replace(line, payload=found.payload)
        observe(machine, command, merged, inner, hidden=(content.content,))


def _opened(machine: Machine, text: Text) -> Reading | None:
    """Parse a script in a string; None where it can't be, or where nothing of it is known."""
    content = bytes_of(text.content)
    if text.content and not text.content.strip(f"{HOLE} \t\n"):
        return None
    return machine.open_text(content, machine.reading.path, at=text.at, inside=text.inside)


def _shell_content(
    machine: Machine, redirects: Sequence[Redirect], line: CommandLine, inner: State
) -> Text | None:
    """Return the script of `bash -c`, `bash <<X` or `bash <<<`; `HOLE` is what can't be told."""
    if line.text is not None:
        alone = line.text.alone
        return _text_of_word(line.text.word, line.text.text) if alone else Text(line.text.text)
    for redirect in redirects:
        if redirect.operator == "<<<" and redirect.word is not None:
            return _text_of_word(redirect.word, value_of(redirect.word, machine.scope(inner)))
        if redirect.heredoc is not None and redirect.word is not None:
            literal = is_quoted(redirect.word)
            text = _heredoc_text(machine, redirect.heredoc, inner, literal=literal)
            plain = literal and redirect.operator == "<<"
            return Text(text, redirect.heredoc.start, Inside.HERE_DOCUMENT) if plain else Text(text)
    return None


def _heredoc_text(machine: Machine, body: Word, inner: State, *, literal: bool) -> str:
    if literal:
        return "".join(part.text for part in body.parts if isinstance(part, Literal))
    quoted = DoubleQuoted(body.start, body.end, body.parts, localised=False)
    return value_of(Word(body.start, body.end, (quoted,)), machine.scope(inner))


def _shell_script(machine: Machine, command: Simple, line: CommandLine, inner: State) -> None:
    found = _first(machine, (_full_path(line.text.text, inner) if line.text else HOLE,))
    reading = machine.open_text(found[1], found[0]) if found else None
    if reading is not None:
        _run_child(machine, command, line, reading, inner)


def _run_child(
    machine: Machine, command: Simple, line: CommandLine, reading: Reading, inner: State
) -> None:
    """Interpret a script that another shell runs: it gets what is exported."""
    child = _child_state(machine, line, inner)
    options = line.shell_options
    if options is None:
        options = options_of(reading.script.content)
    begin(child, options)
    if "BASH_ENV" in inner.variables and not child.get("BASH_ENV").is_absent():
        machine.forget(child, "BASH_ENV", command.start)
    functions = machine.functions
    exported = machine.exported_functions
    machine.functions = {name: each for name, each in functions.items() if name in exported}
    machine.define_functions(reading)
    machine.outer.append((line, command, machine.reading))
    is_file = line.payload is Payload.SCRIPT and line.text is not None
    program, machine.program = machine.program, line.text.text if is_file and line.text else HOLE
    try:
        with machine.read(reading):
            machine.run_apart(reading.script.body, child)
    finally:
        machine.program = program
        machine.outer.pop()
        machine.functions = functions
    inner.started = inner.started | child.started


def _child_state(machine: Machine, line: CommandLine, inner: State) -> State:
    names = set() if line.cleared else set(inner.variables)
    names |= {item.name for item in line.attached} | line.removed
    attached = _attached_writes(machine, line)
    child = State(
        variables={name: seen(line, attached, inner, name) for name in names},
        fallback=seen(line, (), State({}, inner.fallback), ""),
        directory=inner.directory,
        arguments=None if any(HOLE in o for o in line.operands) else line.operands,
        started=inner.started,
    )
    for name, variable in child.variables.items():
        gone = variable.is_absent()
        child.variables[name] = replace(
            variable,
            value=None if gone else variable.value,
            exported=False if gone else variable.exported,
            attributes=frozenset(),
        )
    for name in SHELL_GIVES:
        child.put(name, may_be_given(name))
    return child


def _attached_write(machine: Machine, item: Attached) -> Write:
    """Return the write of an assignment that is an argument of the command."""
    lead = ""
    if item.means is Means.CONTAINER_OPTION and item.option is None:
        lead = "--env=" if item.field.text.startswith("--env=") else "-e"
    return machine.write(
        item.name,
        item.means,
        item.means.value,
        item.field.word.start,
        item.text,
        machine.site_of_field(item.field, item.name, lead),
    )


def _attached_writes(machine: Machine, line: CommandLine) -> tuple[tuple[Attached, Write], ...]:
    return tuple((item, _attached_write(machine, item)) for item in line.attached)


def observe(
    machine: Machine,
    command: Simple,
    line: CommandLine,
    state: State,
    *,
    hidden: tuple[str, ...] = (),
) -> None:
    """Note the start of a server."""
    outer = machine.outer[0] if machine.outer else (line, command, machine.reading)
    machine.pairs.update((before, command.start) for before in state.started)
    machine.observations.append(
        Observation(
            command=command,
            line=line,
            outer=outer[0],
            outer_command=outer[1],
            outer_reading=outer[2],
            state=state.copy(),
            places=tuple(machine.places),
            reading=machine.reading,
            handed=_is_handed(command),
            background=machine.background > 0,
            hidden=hidden,
            attached=_attached_writes(machine, line),
        )
    )
    state.started = state.started | {command.start}


def _is_handed(command: Simple) -> bool:
    """Say whether the command takes words from the arguments of its function."""
    parts = [part for word in command.words for part in word.parts]
    parts += [inner for part in parts if isinstance(part, DoubleQuoted) for inner in part.parts]
    names = {part.name for part in parts if isinstance(part, Parameter)}
    return bool(names & {"@", "*", "1"})


@dataclass(frozen=True)
class Text:
    """A script that the script holds.

    Attributes:
        at: where it stands literally, None where it is put together.
        inside: what surrounds it there.
    """

    content: str
    at: int | None = None
    inside: Inside = Inside.ELSEWHERE


def _text_of_word(word: Word, content: str) -> Text:
    """Return the text of a word: where it is one quoted literal, with its place."""
    part = word.parts[0] if len(word.parts) == 1 else None
    if isinstance(part, SingleQuoted) and not part.ansi and part.text == content:
        return Text(content, part.start + 1, Inside.SINGLE_QUOTES)
    if isinstance(part, DoubleQuoted) and len(part.parts) == 1:
        inner = part.parts[0]
        if isinstance(inner, Literal) and inner.text == content:
            return Text(content, inner.start, Inside.DOUBLE_QUOTES)
    return Text(content)
