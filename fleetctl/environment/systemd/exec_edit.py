"""Exact edits of an ExecStart= line: one word changes, every other byte stays."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.environment.shell.command_line import Attached, CommandLine, Payload
from fleetctl.environment.shell.edit import Context, edit_script
from fleetctl.environment.shell.parser import Parser
from fleetctl.environment.shell.tree import bytes_of, text_of
from fleetctl.environment.splice import Splice
from fleetctl.environment.systemd.exec_line import Start, caller_of
from fleetctl.environment.systemd.syntax import words
from fleetctl.errors import EditRefused


def edited_start(
    start: Start, name: str, wanted: str | None, environment: Mapping[str, str], parser: Parser
) -> str:
    """Return the line that gives its server the wanted value.

    Raises:
        EditRefused: the line can't be edited exactly.
    """
    line = start.command
    if line is None:
        raise _refused(name, start, "nothing is known about the program it starts")
    own = [item for item in line.attached if item.name == name and item.text is not None]
    if own:
        return _attached(start, own, wanted)
    if line.payload is Payload.SHELL and line.text is not None:
        return _in_string(start, line, {name: wanted}, environment, parser)
    if wanted is None or not line.argument_places:
        raise _refused(name, start, line.barrier or "nothing of the unit reaches the server")
    if line.barrier or line.loose:
        raise _refused(name, start, line.barrier or "an expansion in it may set the variable")
    text = _exec_quoted(f"{name}={wanted}")
    form = line.argument_form.replace("%s", "") + text
    at = line.argument_places[0]
    return _spliced(start.value, [Splice(at, at, bytes_of(form + " "))])


def _spliced(value: str, splices: list[Splice]) -> str:
    """Apply splices whose offsets count characters."""
    for splice in sorted(splices, key=lambda s: s.start, reverse=True):
        value = value[: splice.start] + text_of(splice.new) + value[splice.end :]
    return value


def _attached(start: Start, own: list[Attached], wanted: str | None) -> str:
    splices = []
    if wanted is not None:
        last = own[-1]
        lead = last.field.text.partition(last.name + "=")[0]
        text = _exec_quoted(f"{lead}{last.name}={wanted}")
        word = last.field.word
        return _spliced(start.value, [Splice(word.start, word.end, bytes_of(text))])
    for item in own:
        begin = (item.option or item.field).word.start
        end = item.field.word.end
        while end < len(start.value) and start.value[end] == " ":
            end += 1
        splices.append(Splice(begin, end, b""))
    return _spliced(start.value, splices)


def _in_string(
    start: Start,
    line: CommandLine,
    edits: Mapping[str, str | None],
    environment: Mapping[str, str],
    parser: Parser,
) -> str:
    field = line.text
    name = next(iter(edits))
    raw = next((w.text for w in words(start.value) if field and w.start == field.word.start), "")
    plain = raw.replace("$$", "").replace("%%", "")
    if field is None or "$" in plain or "%" in plain:
        raise _refused(name, start, "systemd expands $ or % in the string of the shell")
    context = Context(caller=caller_of(start, environment))
    edited = edit_script(bytes_of(field.text), edits, parser, context=context)
    text = _exec_quoted(text_of(edited.content))
    word = field.word
    return _spliced(start.value, [Splice(word.start, word.end, bytes_of(text))])


def _exec_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _refused(name: str, start: Start, why: str) -> EditRefused:
    return EditRefused(
        f"{name} can't be set through the unit",
        code="unsupported",
        why=f"ExecStart= in {start.path}: {why}",
        line=start.line,
        next_step="edit ExecStart= by hand, or name the serve script",
    )
