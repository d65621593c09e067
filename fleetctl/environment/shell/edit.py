"""Exact edits of shell scripts.

A script is understood, not searched: every server launch is found, what it sees is
computed, and the smallest edit is chosen that makes it see what is wanted. The result
is analysed again; what does not hold then was not an edit. bash has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetctl.environment.names import check_edits, check_shell_names
from fleetctl.environment.shell.analysis import ANYBODY, Analysis, Caller, analyse
from fleetctl.environment.shell.candidates import Candidate, candidates
from fleetctl.environment.shell.conflicts import check_conflicts
from fleetctl.environment.shell.env_file import edit_shell_env_file, is_shell_env_file
from fleetctl.environment.shell.observation import Library
from fleetctl.environment.shell.own_program import interpreter_of
from fleetctl.environment.shell.parser import Parser, ScriptRejected
from fleetctl.environment.shell.referee import check_with_bash
from fleetctl.environment.splice import spliced
from fleetctl.errors import EditRefused

_MOST_ROUNDS = 24


@dataclass(frozen=True)
class Change:
    """One name that had to be changed.

    Attributes:
        means: `edited in place`, `inserted before the launch` and the like.
        line: of the edit, in the script as it was.
        because: why it is this edit and not a plainer one; empty where nothing is to be said.
    """

    name: str
    means: str
    line: int
    because: str = ""

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.name} {self.means} (line {self.line}{self.reason})"

    @property
    def reason(self) -> str:
        """Why it is this edit, as the end of a sentence."""
        return f"; {self.because}" if self.because else ""


@dataclass(frozen=True)
class Edited:
    """The outcome of an edit; equal content and no changes where everything held already."""

    content: bytes
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Context:
    """What is known around a script.

    Attributes:
        path: where it lies, "" where unknown.
        library: files it may source or run.
        caller: what it is started with.
    """

    path: str = ""
    library: Library | None = None
    caller: Caller = ANYBODY


def edit_script(
    content: bytes,
    edits: Mapping[str, str | None],
    parser: Parser,
    *,
    context: Context | None = None,
) -> Edited:
    """Return the script with every server launch seeing exactly the wanted values.

    Args:
        content: a script for bash or sh, or a file of assignments that such a script sources.
        edits: name to wanted value; None means the server must not have the variable.
        parser: shfmt and bash.
        context: what is known around it.

    Raises:
        EditRefused: it can't be done exactly; `code`, `line` and `why` say where and why.
    """
    check_edits(edits)
    check_shell_names(edits)
    check_is_shell(content)
    around = context or Context()
    analysis = _analysed(content, parser, around)
    if not analysis.launches:
        if is_shell_env_file(analysis):
            return _env_file(analysis, edits, parser)
        raise _no_server(analysis)
    if _holds(analysis, edits):
        return Edited(content, ())
    return _search(analysis, edits, parser, around)


def starts_server(content: bytes, parser: Parser) -> bool:
    """Say whether a shell that ran the file would start a server."""
    try:
        return bool(analyse(content, parser).launches)
    except (ScriptRejected, EditRefused):
        return False


def check_is_shell(content: bytes) -> None:
    """Refuse what is no bash or sh script.

    Raises:
        EditRefused: `unsupported`.
    """
    program = interpreter_of(content.removeprefix(b"\xef\xbb\xbf"))
    problem = ""
    if b"\0" in content:
        problem = "it is a binary file"
    elif program not in ("", "sh", "bash"):
        problem = f"it is run by {program}"
    elif not content.strip():
        problem = "it is empty"
    elif _is_crlf(content):
        problem = "its lines end in CR LF, so every value would end in a carriage return"
    if problem:
        raise EditRefused(
            "this is not a script for bash or sh",
            code="unsupported",
            why=problem,
            next_step="set the flag in the unit instead, or name the script that starts the server",
            line=1,
        )


def _is_crlf(content: bytes) -> bool:
    lines = content.splitlines(keepends=True)
    ended = [line for line in lines if line.endswith(b"\n")]
    return bool(ended) and all(line.endswith(b"\r\n") for line in ended)


def _analysed(content: bytes, parser: Parser, around: Context) -> Analysis:
    try:
        parser.check(content)
    except ScriptRejected as error:
        raise EditRefused(
            "bash does not accept the script",
            code="syntax",
            why=error.complaint,
            line=error.line or None,
            next_step="correct it; `bash -n` shows the same message",
        ) from error
    try:
        return analyse(
            content, parser, path=around.path, library=around.library, caller=around.caller
        )
    except ScriptRejected as error:
        raise EditRefused(
            "the script can't be parsed exactly",
            code="unsupported",
            why=f"bash accepts it, shfmt says: {error.complaint}",
            line=error.line or None,
            next_step="set the flag in the unit instead",
        ) from error


def _no_server(analysis: Analysis) -> EditRefused:
    others = [path for path in analysis.opened if path.strip("\0/")]
    hint = f"name the script that starts it (this one opens {', '.join(others)})" if others else ""
    return EditRefused(
        "no server is started here",
        code="no-server",
        why="no command that starts a server is ever reached, so a variable would reach none",
        next_step=hint.replace("\0", "…") or "name the script that starts the server",
    )


def _holds(analysis: Analysis, edits: Mapping[str, str | None]) -> bool:
    return all(
        launch.variable(name).holds(wanted)
        for launch in analysis.launches
        for name, wanted in edits.items()
    )


def _search(
    analysis: Analysis, edits: Mapping[str, str | None], parser: Parser, around: Context
) -> Edited:
    """Take the first candidate of every launch that does not hold; move on where it fails."""
    content = analysis.script.content
    choices: dict[tuple[str, int], list[Candidate]] = {}
    for _ in range(_MOST_ROUNDS):
        chosen = [queue[0] for queue in choices.values()]
        splices = [s for c in chosen for s in c.splices]
        text = spliced(content, splices)
        after = analysis if not chosen else _analysed(text, parser, around)
        failing = _failing(after, edits)
        if not failing:
            check_with_bash(content, splices, edits, parser)
            changes = dict.fromkeys(Change(c.name, c.means, c.line, c.because) for c in chosen)
            return Edited(text, tuple(changes))
        for name, number in failing:
            _advance(analysis, choices, name, number, edits[name])
    raise InexactEdit(edits)


def _failing(analysis: Analysis, edits: Mapping[str, str | None]) -> list[tuple[str, int]]:
    return [
        (name, number)
        for name, wanted in edits.items()
        for number, launch in enumerate(analysis.launches)
        if not launch.variable(name).holds(wanted)
    ]


def _advance(
    analysis: Analysis,
    choices: dict[tuple[str, int], list[Candidate]],
    name: str,
    number: int,
    wanted: str | None,
) -> None:
    launch = analysis.launches[number]
    key = (name, number)
    if key not in choices:
        check_conflicts(analysis, name)
        choices[key] = candidates(analysis, launch, name, wanted)
    else:
        choices[key] = choices[key][1:]
    if not choices[key]:
        raise EditRefused(
            f"{name} can't be set exactly for the server in line {launch.line}",
            code="unsupported",
            why="something between the last place for an edit and the server may change it again",
            line=launch.line,
            next_step="set it in the unit, or edit that line by hand",
        )


class InexactEdit(EditRefused):
    """No combination of edits makes every launch see what is wanted."""

    def __init__(self, edits: Mapping[str, str | None]) -> None:
        super().__init__(
            f"{', '.join(edits)} can't be set exactly",
            code="unsupported",
            why="no combination of edits makes every server launch see the wanted values",
            next_step="set the flags one by one, or in the unit",
        )


def _env_file(analysis: Analysis, edits: Mapping[str, str | None], parser: Parser) -> Edited:
    content = analysis.script.content
    splices, changed = edit_shell_env_file(analysis, edits)
    if splices:
        check_with_bash(content, splices, edits, parser)
    after = spliced(content, splices)
    return Edited(after, tuple(Change(name, means, line) for name, means, line in changed))
