"""The command line: one table of commands, one error boundary."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.check import check
from fleetctl.cli.classify import classify, reclassify
from fleetctl.cli.env import env
from fleetctl.cli.env_host import show
from fleetctl.cli.hosts import forget, rollback, status, unlock
from fleetctl.cli.judge import judge, power
from fleetctl.cli.lab import lab
from fleetctl.cli.matrix import matrix
from fleetctl.cli.plan import plan
from fleetctl.cli.repro import repro
from fleetctl.cli.results import results
from fleetctl.cli.run import aa, resume, run
from fleetctl.cli.search import bisect, minimize
from fleetctl.cli.worker import worker

app = typer.Typer(
    name="fleetctl",
    help="Declarative experiments on the GPU hosts that serve language models.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        from fleetctl.cli.data import print_lines

        print_lines([f"fleetctl {version('fleetctl')}"])
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and end."
        ),
    ] = False,
) -> None:
    """Declarative experiments on the GPU hosts that serve language models."""


COMMANDS = (
    check,
    plan,
    run,
    resume,
    matrix,
    worker,
    bisect,
    minimize,
    aa,
    status,
    rollback,
    unlock,
    forget,
    repro,
    classify,
    reclassify,
    judge,
    power,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(results, name="results")
app.add_typer(lab, name="lab")
env.command()(show)
app.add_typer(env, name="env")


def help_texts() -> dict[str, str]:
    """Return the help text of every command, by its full name; for the reference."""
    found: dict[str, str] = {}
    _collect(typer.main.get_command(app), "fleetctl", found)
    return found


def _collect(command: Any, name: str, found: dict[str, str]) -> None:  # noqa: ANN401 - typer exports no type for it
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=96)
    found[name] = command.get_help(context)
    for inner_name, inner in getattr(command, "commands", {}).items():
        _collect(inner, f"{name} {inner_name}", found)


def main() -> None:
    """Run the command line and end the process with a documented exit code."""
    sys.exit(run_guarded(app))
