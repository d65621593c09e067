"""`fleetctl lab`: a fleet on this machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.options import DEFAULT_LAB_DIR, LAB_DIR_VARIABLE, AsJson

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.lab import Lab, LabStatus

lab = typer.Typer(
    name="lab",
    help="A fleet on this machine: hosts that are reached by ordinary SSH.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LabDir = Annotated[
    Path,
    typer.Option("--dir", envvar=LAB_DIR_VARIABLE, help="Directory of the lab."),
]
HostName = Annotated[str, typer.Argument(metavar="NAME", help="A host of the lab, such as lab-1.")]
COLUMNS = ("HOST", "STATE", "ADDRESS", "SERVICE")


@lab.command()
def up(
    hosts: Annotated[int, typer.Option("--hosts", help="How many there should be at least.")] = 1,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="namespaces|processes",
            help="What hosts are made of; default: the best this machine permits.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="ARGUMENTS",
            help="Further arguments of the engine, in one word: '--depth 2 --context-tokens 5440'.",
            show_default=False,
        ),
    ] = "",
    directory: LabDir = DEFAULT_LAB_DIR,
    as_json: AsJson = False,
) -> None:
    """Bring the lab up, or to more hosts; all of them answer afterwards."""
    from fleetctl.lab import Kind

    if kind not in {None, *Kind}:
        raise typer.BadParameter(f"{kind}: it is namespaces or processes", param_hint="--kind")
    the_lab = _lab(directory)
    was_up = bool(the_lab.hosts)
    the_lab.up(hosts, kind=Kind(kind) if kind else None, engine=_words(engine))
    if was_up:
        _say(f"the lab was up; it has {len(the_lab.hosts)} hosts")
    _print(the_lab.status(), as_json)


@lab.command()
def status(directory: LabDir = DEFAULT_LAB_DIR, as_json: AsJson = False) -> None:
    """Show what each host is like, and what this kind can't show."""
    _print(_lab(directory).status(), as_json)


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def ssh(
    name: HostName,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...", help="What to run; default: a shell.", show_default=False
        ),
    ] = None,
    directory: LabDir = DEFAULT_LAB_DIR,
) -> None:
    """Log in to a host, or run a command there. Options come before NAME."""
    argv = _lab(directory).ssh_argv(name, command or [])
    os.execv(argv[0], argv)  # noqa: S606 - ssh takes our place, with its own terminal and exit code


@lab.command()
def kill(name: HostName, directory: LabDir = DEFAULT_LAB_DIR) -> None:
    """Cut a host from power; its disk stays."""
    _lab(directory).kill(name)
    _say(f"{name} has no power")


@lab.command()
def boot(name: HostName, directory: LabDir = DEFAULT_LAB_DIR) -> None:
    """Give a host power again and wait until it answers."""
    _lab(directory).boot(name)


@lab.command()
def cut(name: HostName, directory: LabDir = DEFAULT_LAB_DIR) -> None:
    """Cut a host from the network, also across boots, until `heal`."""
    _lab(directory).cut(name)
    _say(f"{name} is cut from the network")


@lab.command()
def heal(name: HostName, directory: LabDir = DEFAULT_LAB_DIR) -> None:
    """Connect a host to the network again."""
    _lab(directory).heal(name)
    _say(f"{name} is connected")


@lab.command()
def down(directory: LabDir = DEFAULT_LAB_DIR) -> None:
    """Remove the lab with all it has here, also after a crash."""
    the_lab = _lab(directory)
    was_there = the_lab.down()
    _say(f"the lab in {the_lab.directory} is {'gone' if was_there else 'not there'}")


def _words(engine: str) -> list[str]:
    try:
        return shlex.split(engine)
    except ValueError as odd:
        raise typer.BadParameter(f"{engine}: {odd}", param_hint="--engine") from odd


def _lab(directory: Path) -> Lab:
    from fleetctl.lab import Lab

    return Lab.at(directory, say=_say)


def _about(found: LabStatus) -> list[str]:
    """Say what the hosts are made of, what they can't show, and where their inventory is."""
    why = f": {found.why_this_kind}" if found.why_this_kind else ""
    lines = [f"hosts made of {found.kind}{why}"]
    lines += [f"  can't show {thing}" for thing in found.cannot_show]
    if found.stale_hosts:
        names = ", ".join(found.stale_hosts)
        lines.append(f"  {names}: the payload changed since the serving tree was copied from it")
    return [*lines, f"inventory: {found.inventory}"]


def _say(*lines: str) -> None:
    from fleetctl.cli.boundary import say

    say(*lines)


def _print(found: LabStatus, as_json: bool) -> None:
    from fleetctl.cli.data import print_json, print_lines

    if as_json:
        print_json(found.as_document())
        return
    if found.kind is None:
        _say(f"there is no lab in {found.directory}")
        return
    _say(*_about(found))
    rows = [COLUMNS] + [
        (
            host.record.name,
            str(host.state),
            f"{host.record.address}:{host.record.port}",
            host.unit_state,
        )
        for host in found.hosts
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    print_lines("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
