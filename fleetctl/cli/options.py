"""Options and arguments that several commands share; imports nothing heavy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

SpecPath = Annotated[Path, typer.Argument(help="A TOML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
InventoryPath = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        envvar="FLEETCTL_INVENTORY",
        help="Inventory file; default inventory/fleet.toml, then the lab's.",
        show_default=False,
    ),
]
RunsPath = Annotated[
    Path, typer.Option("--runs", envvar="FLEETCTL_RUNS", help="Folder of the run folders.")
]
QueueAddress = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="URL",
        help="postgresql://USER@HOST:PORT/DATABASE; the password comes from PGPASSFILE.",
        show_default=False,
    ),
]
Targets = Annotated[
    list[str],
    typer.Option(
        "--host",
        metavar="NAME",
        help="Host, group or role; may be repeated. Default: every host.",
        default_factory=list,
        show_default=False,
    ),
]
DEFAULT_RUNS = Path("runs")
LAB_DIR_VARIABLE = "FLEETCTL_LAB_DIR"
DEFAULT_LAB_DIR = Path(".fleetctl/lab")


def finite(value: float | None) -> float | None:
    """Return the value of a number option.

    Raises:
        BadParameter: it is infinite or no number, which `min` and `max` let through.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value
