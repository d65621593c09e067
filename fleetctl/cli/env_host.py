"""`fleetctl env HOST`: where each flag of a running service comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath

if TYPE_CHECKING:
    from fleetctl.environment.explain import FlagOrigin
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
    told = []
    with edges(DEFAULT_RUNS, console) as outside, reached(outside, fleet, host) as hosts:
        for found in hosts:
            origins = explain_flags(found, tuple(names or ()))
            told.append({"host": found.name, "flags": origins_as_json(origins)})
            if not as_json:
                print_lines([f"{found.name}: {found.host.unit}", *render_origins(origins)])
            for line in (*_without_processes(found, origins), *_likely_mistyped(found, origins)):
                console.say(f"note: {found.name}: {line}")
    if as_json:
        print_json(told)
    console.say(f"note: {ENVIRON_NOTE}")


def _without_processes(found: Reached, origins: Sequence[FlagOrigin]) -> Iterator[str]:
    """Yield a line where nothing runs: files alone can't tell whether the unit ever reads them."""
    if origins and not any(origin.running for origin in origins):
        yield (
            f"no process of {found.host.unit} runs, so this is what its files say; where there is"
            " no such unit, mend `unit` in the inventory"
        )


def _likely_mistyped(found: Reached, origins: Sequence[FlagOrigin]) -> Iterator[str]:
    """Yield a line for each flag that nothing sets while something sets one very like it."""
    from fleetctl.spec.nearest import SURELY_MISTYPED, nearest
    from fleetctl.workflow.flags import explain_flags

    unknown = [o.name for o in origins if not o.setters and not o.overridden]
    known = {origin.name for origin in explain_flags(found, ())} if unknown else set()
    for name in unknown:
        if name not in known and (hint := nearest(name, known, cutoff=SURELY_MISTYPED)):
            yield f"nothing sets {name}{hint}"
