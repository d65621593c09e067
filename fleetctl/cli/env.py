"""`fleetctl env`: where a service's flags come from, and exact edits of them by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fleetctl.cli.options import AsJson
from fleetctl.errors import ExitCode, InputError

if TYPE_CHECKING:
    from fleetctl.environment.local import LocalEdit

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [NAME=VALUE...]",
        help="A file of this machine (not with --unit), then flags.",
    ),
]
Unset = Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="Take NAME away.")]
EditsPath = Annotated[
    Path | None,
    typer.Option("--edits", metavar="EDITS.json", help="Names to values, null to take one away."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change, write nothing.")]
Root = Annotated[Path, typer.Option(help="A directory that stands for / (with --unit).")]
Unit = Annotated[str | None, typer.Option(help="Edit what this systemd service gets.")]
Scope = Annotated[str, typer.Option(help="Whose unit: system or user.")]


class HostOrCommand(TyperGroup):
    """`fleetctl env HOST` means `fleetctl env show HOST`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer exports no types for it
        """Take the first argument for a host where it is no command."""
        if args and args[0] not in self.commands and "show" in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


def edit(  # noqa: PLR0913, PLR0917 - one parameter per option of the command
    context: typer.Context,
    arguments: Arguments = None,
    unset: Unset = None,
    edits: EditsPath = None,
    root: Root = Path("/"),
    unit: Unit = None,
    scope: Scope = "system",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Give a service's server exact flags: in a script, an env file, or through a unit.

    FILE and the unit are this machine's; `fleetctl run` edits those of hosts. Only the bytes
    that matter change; where that can't be done exactly, nothing is changed and the reason is
    said (exit code 3).
    """
    from fleetctl.cli.boundary import missing, say
    from fleetctl.environment.local import edit_local_file, edit_local_unit, write_edits

    given = list(arguments or [])
    if unit is None and not given:
        raise missing(context, "argument 'FILE', or --unit")
    if unit is None:
        file = _file(given)
        wanted = wanted_edits(given[1:], unset or [], edits)
        found = edit_local_file(file, wanted)
    else:
        wanted = wanted_edits(given, unset or [], edits)
        found = edit_local_unit(root, unit, wanted, user=_is_user(scope))
    for line in likely_mistyped(wanted, found):
        say(f"note: {line}")
    if not dry_run:
        write_edits(found)
    _print_edits(found, dry_run, as_json)
    return int(ExitCode.OK)


env = typer.Typer(no_args_is_help=True, cls=HostOrCommand)
env.command(short_help="Give a server exact flags: in a script, env file or unit.")(edit)


@env.callback()
def root() -> None:
    """Show where a host's flags come from; edit a script, an env file or a unit by hand."""


def _file(given: list[str]) -> Path:
    path = Path(given[0])
    if "=" in given[0] and not path.exists():
        raise InputError(
            "no file is named",
            why=f"without --unit, the first argument is the file to edit, and `{given[0]}` is none",
            next_step="fleetctl env edit serve.sh NAME=VALUE, with a file of this machine",
        )
    return path


def likely_mistyped(
    wanted: Mapping[str, str | None], edits: tuple[LocalEdit, ...]
) -> Iterator[str]:
    """Yield a line for each name that the files did not hold while they hold one very like it."""
    import re

    from fleetctl.spec.nearest import SURELY_MISTYPED, nearest

    old = b"\n".join(edit.old or b"" for edit in edits).decode("utf-8", "replace")
    known = set(re.findall(r"\b([A-Za-z_][A-Za-z0-9_]*)=", old))
    for name in wanted:
        if name not in known and (hint := nearest(name, known, cutoff=SURELY_MISTYPED)):
            yield f"nothing has set {name} so far{hint}"


def _is_user(scope: str) -> bool:
    if scope not in ("system", "user"):
        raise InputError(
            f"unknown scope: {scope}",
            why="a unit belongs to the system manager or to a user's",
            next_step="--scope system, or --scope user",
        )
    return scope == "user"


def wanted_edits(pairs: list[str], unset: list[str], path: Path | None) -> Mapping[str, str | None]:
    """Return the edits that a command line asks for.

    Raises:
        InputError: an argument is no NAME=VALUE, a name is given twice, or the file is no map.
    """
    import json

    from fleetctl.trial.reasons import in_words

    edits: dict[str, str | None] = {}
    items: list[tuple[str, str | None]] = []
    if path is not None:
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _bad_edits(str(path), in_words(error)) from error
        if not isinstance(loaded, dict):
            raise _bad_edits(str(path), "it is no object of names and values")
        items += list(loaded.items())
    items += [_pair(text) for text in pairs]
    items += [(name, None) for name in unset]
    for name, value in items:
        if name in edits or not (value is None or isinstance(value, str)):
            raise _bad_edits(name, "every name once, every value a string or null")
        edits[name] = value
    if not edits:
        raise _bad_edits("no edit", "neither NAME=VALUE nor --unset nor --edits is given")
    return edits


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise _bad_edits(text, "it is no NAME=VALUE")
    return name, value


def _bad_edits(what: str, why: str) -> InputError:
    return InputError(
        f"the edits can't be used: {what}",
        why=why,
        next_step='NAME=VALUE, --unset NAME, or --edits with {"NAME": "value", "OTHER": null}',
    )


def _print_edits(found: tuple[LocalEdit, ...], dry_run: bool, as_json: bool) -> None:
    from fleetctl.cli.boundary import say
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.environment.render import unified_diff

    if as_json:
        print_json(
            {
                "changed": bool(found) and not dry_run,
                "files": [
                    {
                        "path": str(edit.path),
                        "means": edit.means,
                        "why": edit.why,
                        "diff": unified_diff(str(edit.path), edit.old, edit.new),
                    }
                    for edit in found
                ],
            }
        )
        return
    for edit in found:
        print_lines(unified_diff(str(edit.path), edit.old, edit.new).splitlines())
        say(f"{'would edit' if dry_run else 'edited'} {edit.path}: {edit.why}")
    if not found:
        say("nothing to do: every launch already has it")
