"""`fleetctl env HOST`: where each flag of a running service comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath

if TYPE_CHECKING:
    from fleetctl.workflow.edges import Reached


def show(
    host: Annotated[str, typer.Argument(help="A host, group or role.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Flags; default: all that anything sets."),
    ] = None,
    inventory: InventoryPath = None,
    as_json: AsJson = False,
) -> None:
    """Explain each flag of a host's service: value, who sets it, who is overridden, what runs."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.environment.render import origins_as_json, render_origins
    from fleetctl.serving.proof import ENVIRON_NOTE
    from fleetctl.workflow.flags import explain_flags
    from fleetctl.workflow.reach import reached

    console = Console()
    fleet = the_inventory(inventory, console)

    def one(found: Reached) -> None:
        origins = explain_flags(found, tuple(names or ()))
        if as_json:
            print_json({"host": found.name, "flags": origins_as_json(origins)})
            return
        print_lines([f"{found.name}: {found.host.unit}", *render_origins(origins)])

    with edges(DEFAULT_RUNS, console) as outside, reached(outside, fleet, host) as hosts:
        for found in hosts:
            one(found)
    console.say(f"note: {ENVIRON_NOTE}")
