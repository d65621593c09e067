"""Files of assignments that a serve script sources: no server starts in them."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.environment.quoting import quoted_like, shell_quoted
from fleetctl.environment.shell.analysis import Analysis
from fleetctl.environment.shell.dataflow import NO_VARIABLE, Variable
from fleetctl.environment.shell.own_program import interpreter_of
from fleetctl.environment.shell.tree import (
    Declaration,
    Literal,
    Simple,
    Statement,
    bytes_of,
    text_of,
)
from fleetctl.environment.splice import Splice
from fleetctl.errors import EditRefused


def is_shell_env_file(analysis: Analysis) -> bool:
    """Say whether the file does nothing but set variables, for whoever sources it.

    With a first line that names a shell it is run, not sourced: its variables reach nobody.
    """
    body = analysis.script.body
    if interpreter_of(analysis.script.content) or analysis.end is None:
        return False
    return any(_assigns(s) for s in body) and all(_assigns(s) or _sets_option(s) for s in body)


def _assigns(statement: Statement) -> bool:
    command = statement.command
    if statement.background or statement.redirects:
        return False
    if isinstance(command, Simple):
        return bool(command.assignments) and not command.words
    return isinstance(command, Declaration)


def _sets_option(statement: Statement) -> bool:
    command = statement.command
    if not isinstance(command, Simple) or not command.words:
        return False
    parts = command.words[0].parts
    return len(parts) == 1 and isinstance(parts[0], Literal) and parts[0].text in ("set", "unset")


def edit_shell_env_file(
    analysis: Analysis, edits: Mapping[str, str | None]
) -> tuple[list[Splice], list[tuple[str, str, int]]]:
    """Return the splices that give whoever sources the file the wanted values, and what they are.

    Raises:
        EditRefused: a name is readonly or an array.
    """
    splices: list[Splice] = []
    changes: list[tuple[str, str, int]] = []
    content = analysis.script.content
    last = content.count(b"\n") + (not content.endswith(b"\n"))
    exports = b"export " in content
    for name, wanted in edits.items():
        variable = analysis.end.get(name) if analysis.end else NO_VARIABLE
        if _holds(variable, wanted, exports=exports):
            continue
        splice = _in_place(content, variable, wanted)
        if splice is not None:
            splices.append(splice)
            changes.append((name, "edited in place", content.count(b"\n", 0, splice.start) + 1))
            continue
        _check(name, variable)
        splices.append(_appended(content, name, wanted, exports=exports, first=not splices))
        changes.append((name, "added at the end", last))
    return splices, changes


def _holds(variable: Variable, wanted: str | None, *, exports: bool) -> bool:
    if wanted is None:
        return variable.value is None
    return variable.value == wanted and (variable.exported is True or not exports)


def _in_place(content: bytes, variable: Variable, wanted: str | None) -> Splice | None:
    write = next(iter(variable.writers)) if len(variable.writers) == 1 else None
    if wanted is None or write is None or write.site is None or not write.site.pure:
        return None
    site = write.site
    if site.whole:
        return Splice(site.start, site.end, bytes_of(f"{write.name}={shell_quoted(wanted)}"))
    old = text_of(content[site.value_start : site.end])
    return Splice(site.value_start, site.end, bytes_of(quoted_like(wanted, old)))


def _check(name: str, variable: Variable) -> None:
    for attribute, code in (("readonly", "readonly"), ("array", "ambiguous")):
        if attribute in variable.attributes:
            raise EditRefused(
                f"{name} can't be set in this file",
                code=code,
                why=f"the file declares it: {attribute}",
                next_step="edit the declaration by hand",
            )


def _appended(
    content: bytes, name: str, wanted: str | None, *, exports: bool, first: bool
) -> Splice:
    if wanted is None:
        text = f"unset {name}\n"
    else:
        text = f"{'export ' if exports else ''}{name}={shell_quoted(wanted)}\n"
    glue = b"\n" if first and content and not content.endswith(b"\n") else b""
    return Splice(len(content), len(content), glue + bytes_of(text))
