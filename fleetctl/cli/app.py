"""The command line: one table of commands, one error boundary."""

from __future__ import annotations

import sys

import typer

from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.check import check

app = typer.Typer(
    name="fleetctl",
    help="Declarative experiments on the GPU hosts that serve language models.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def root() -> None:
    """Declarative experiments on the GPU hosts that serve language models."""


app.command()(check)


def main() -> None:
    """Run the command line and end the process with a documented exit code."""
    sys.exit(run_guarded(app))
