"""Where errors become messages and exit codes."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator

import typer

from fleetctl.cli.data import forget_reader
from fleetctl.errors import ExitCode, FleetError

REPORT_A_BUG = "this is a bug in fleetctl; please report it with the traceback above"

# typer brings its own copy of click and re-exports only some of its errors: BadParameter's
# base two steps up is the one that every usage error shares
_USAGE_ERROR = typer.BadParameter.__mro__[2]


def run_guarded(app: Callable[..., object]) -> int:
    """Run the application and return its exit code; every error is printed once, on stderr."""
    try:
        result = app(standalone_mode=False)
    except FleetError as error:
        print_error(error)
        return int(error.exit_code)
    except typer.Exit as ended:
        return ended.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        forget_reader()
        return int(ExitCode.OK)
    except SystemExit as ended:
        return _ended(ended)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug must not look like a verdict
        return _usage_or_bug(error)
    return result if isinstance(result, int) else int(ExitCode.OK)


def _ended(ended: SystemExit) -> int:
    """Return the exit code of a library that ends the process: typer, when help has no reader.

    A reader that leaves (`--help | head -1`) is no failure.
    """
    if isinstance(ended.__context__, BrokenPipeError):
        forget_reader()
        return int(ExitCode.OK)
    return ended.code if isinstance(ended.code, int) else int(ExitCode.INTERNAL)


def _usage_or_bug(error: Exception) -> int:
    if isinstance(error, _USAGE_ERROR):
        with contextlib.suppress(OSError, ValueError):  # nobody listens: the exit code still speaks
            error.show()  # type: ignore[attr-defined]
        return int(ExitCode.USAGE)
    traceback.print_exception(error)
    say("error: internal error", "", f"hint: {REPORT_A_BUG}")
    return int(ExitCode.INTERNAL)


def print_error(error: FleetError) -> None:
    """Say what, why and the next step on stderr."""
    say(f"error: {error.what}")
    if error.why:
        say(f"  why: {error.why}")
    for line in conflict_lines(error):
        say(f"  {line}")
    if error.next_step:
        say("", f"hint: {error.next_step}")


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
