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
# the list of commands cuts a first sentence at 80 columns; these are whole there
_IN_THE_LIST = {
    run: "Run an experiment: deploy, prove, measure, restore, judge.",
    resume: "Go on with a run whose controller ended.",
    worker: "Measure cells that others put on a queue.",
    bisect: "Find which of many changes raised the rate.",
    minimize: "Find the few of many changes that are needed together.",
    aa: "Measure the control alone, for the spread of its runs.",
    status: "Show who works on which host, and what is changed there.",
    unlock: "End somebody's lease by its exact id.",
    forget: "Remove every trace of fleetctl from hosts.",
    repro: "Run only the workload, against any server.",
    reclassify: "Judge a stored run again, offline.",
    judge: "Judge counts typed in by hand.",
    power: "Say what a design can see, and what other effects need.",
}
for command in COMMANDS:
    app.command(short_help=_IN_THE_LIST.get(command))(command)
app.add_typer(results, name="results")
app.add_typer(lab, name="lab", short_help="Hosts on this machine, reached by ordinary SSH.")
env.command(short_help="Explain each flag of a host's service.")(show)
app.add_typer(env, name="env", short_help="Show where a host's flags come from, or edit a file.")


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
