"""Where errors become messages, JSON documents and exit codes."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import typer

from fleetctl.cli.data import forget_reader, print_json
from fleetctl.cli.typed import as_here, typed
from fleetctl.errors import EditRefused, ExitCode, FleetError, Interrupted

REPORT_A_BUG = "this is a bug in fleetctl; please report it with the traceback above"

# typer brings its own copy of click and re-exports only some of its errors: BadParameter's
# base two steps up is the one that every usage error shares
_USAGE_ERROR = typer.BadParameter.__mro__[2]
_WRONG_USAGE: Callable[[str, typer.Context], Exception] = typer.BadParameter.__mro__[1]


class ToldAsJson(Exception):
    """Carries an error that stands in the JSON document which its command printed already."""

    def __init__(self, error: FleetError) -> None:
        super().__init__(str(error))
        self.error = error


def missing(context: typer.Context, what: str) -> Exception:
    """Return the error of a command line that lacks something which no single parameter is.

    It reads and ends as that of a missing argument does.

    Args:
        context: of the command.
        what: such as `argument 'spec', or --resume`.
    """
    return _WRONG_USAGE(f"Missing {what}.", context)


def run_guarded(app: Callable[..., object]) -> int:
    """Run the application and return its exit code.

    Every error is printed once on stderr; with `--json` it is the one document on stdout, too.
    """
    try:
        result = app(standalone_mode=False, prog_name="fleetctl")
    except typer.Exit as ended:
        return _told_exit(ended.exit_code)
    except BrokenPipeError:
        forget_reader()
        return int(ExitCode.OK)
    except SystemExit as ended:
        return _ended(ended)
    except ToldAsJson as told:
        print_error(told.error)
        return int(told.error.exit_code)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last line of defence: a bug must not look like a verdict
        document = _tell(error)
        if _asks_for_json(sys.argv):
            _print_document(document)
        return int(document["exit_code"])
    return _told_exit(result) if isinstance(result, int) else int(ExitCode.OK)


def _told_exit(code: int) -> int:
    """Return an exit code; typer makes one of Ctrl-C without a word, which is said here."""
    if code == ExitCode.INTERRUPTED:
        document = _tell(KeyboardInterrupt())
        if _asks_for_json(sys.argv):
            _print_document(document)
    return code


def _asks_for_json(argv: list[str]) -> bool:
    """Whether a command line has `--json` as an option, also one that could not be parsed."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return "--json" in options[1:]


def _print_document(error: dict[str, Any]) -> None:
    with contextlib.suppress(FleetError):  # stdout is full: stderr and the exit code have told it
        print_json({"error": error}, is_short=True)


def _tell(error: BaseException) -> dict[str, Any]:
    """Say on stderr what ended the command, and return it as data."""
    if isinstance(error, FleetError):
        if isinstance(error, Interrupted) and "`" not in error.next_step:
            error.next_step += f": `{typed()}`"
        print_error(error)
        return error_as_json(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        again = f"`{typed()}` starts it again"
        say("interrupted", "", f"hint: {again}")
        return error_as_json(Interrupted("interrupted", why="", next_step=again))
    if isinstance(error, _USAGE_ERROR):
        with contextlib.suppress(OSError, ValueError):  # nobody listens: the exit code still speaks
            error.show()  # type: ignore[attr-defined]
        return _usage_as_json(error)
    traceback.print_exception(error)
    say("error: internal error", "", f"hint: {REPORT_A_BUG}")
    why = f"{type(error).__name__}: {error}"
    return _plain("InternalError", "internal error", why, REPORT_A_BUG, ExitCode.INTERNAL)


def _usage_as_json(error: Any) -> dict[str, Any]:  # noqa: ANN401 - typer exports no type for it
    command = error.ctx.command_path if error.ctx else "fleetctl"
    what = error.format_message()
    return _plain("UsageError", what, "", f"{command} --help", ExitCode.USAGE)


def _plain(kind: str, what: str, why: str, next_step: str, code: ExitCode) -> dict[str, Any]:
    told = {"kind": kind, "what": what, "why": why, "next_step": next_step}
    return {**told, "exit_code": int(code)}


def error_as_json(error: FleetError) -> dict[str, Any]:
    """Return an error as it stands in JSON documents.

    `kind` is its class in `fleetctl.errors`. A refused edit has its `code` and `line` as well, and
    a conflict the files in `conflicts`.
    """
    kind = type(error).__name__
    found = _plain(kind, error.what, error.why, as_here(error.next_step), error.exit_code)
    if isinstance(error, EditRefused):
        found |= {"code": error.code, "line": error.line}
    if conflicts := getattr(error, "conflicts", ()):
        found["conflicts"] = [asdict(conflict) for conflict in conflicts]
    return found


def _ended(ended: SystemExit) -> int:
    """Return the exit code of a library that ends the process: typer, when help has no reader.

    A reader that leaves (`--help | head -1`) is no failure.
    """
    if isinstance(ended.__context__, BrokenPipeError):
        forget_reader()
        return int(ExitCode.OK)
    return ended.code if isinstance(ended.code, int) else int(ExitCode.INTERNAL)


def print_error(error: FleetError) -> None:
    """Say what, why and the next step on stderr."""
    say(f"error: {error.what}")
    if error.why:
        say(f"  why: {error.why}")
    for line in conflict_lines(error):
        say(f"  {line}")
    if error.next_step:
        say("", f"hint: {as_here(error.next_step)}")


def conflict_lines(error: FleetError) -> Iterator[str]:
    """Yield each file that somebody else changed: the change, and where the former bytes lie."""
    for conflict in getattr(error, "conflicts", ()):
        former = conflict.before_object or "there was no file"
        yield f"{conflict.path}: changed by somebody else; as it was: {former}"
        yield from (f"  {line}" for line in conflict.diff.splitlines())


def say(*lines: str) -> None:
    """Talk on stderr; stdout is for data."""
    with contextlib.suppress(OSError, ValueError):  # nobody listens: the exit code still speaks
        for line in lines:
            print(line, file=sys.stderr, flush=True)
