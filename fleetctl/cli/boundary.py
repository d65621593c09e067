"""Where errors become messages and exit codes."""

from __future__ import annotations

import sys
import traceback

import click
import typer

from fleetctl.errors import ExitCode, FleetError

REPORT_A_BUG = "this is a bug in fleetctl; please report it with the traceback above"


def run_guarded(app: typer.Typer) -> int:
    """Run the application and return its exit code; every error is printed once, on stderr."""
    try:
        result = app(standalone_mode=False)
    except FleetError as error:
        print_error(error)
        return int(error.exit_code)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return int(ExitCode.USAGE)
    except (KeyboardInterrupt, click.exceptions.Abort):
        say("interrupted")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return int(ExitCode.OK)
    except Exception:  # noqa: BLE001 - the last line of defence: a bug must not look like a verdict
        traceback.print_exc()
        say("error: internal error", "", f"hint: {REPORT_A_BUG}")
        return int(ExitCode.INTERNAL)
    return result if isinstance(result, int) else int(ExitCode.OK)


def print_error(error: FleetError) -> None:
    """Say what, why and the next step on stderr."""
    say(f"error: {error.what}")
    if error.why:
        say(f"  why: {error.why}")
    if error.next_step:
        say("", f"hint: {error.next_step}")


def say(*lines: str) -> None:
    """Talk on stderr; stdout is for data."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)
