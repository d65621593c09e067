"""`fleetctl worker`: take cells from a queue to the hosts of an inventory; and matrices on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.boundary import missing
from fleetctl.cli.console import Console
from fleetctl.cli.options import DEFAULT_RUNS, InventoryPath, QueueAddress, RunsPath, finite

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.queue.opening import Joined
    from fleetctl.spec.inventory import Inventory
    from fleetctl.store.campaign import CampaignState
    from fleetctl.store.run_folder import RunFolder
    from fleetctl.workflow.campaign import CampaignEnd
    from fleetctl.workflow.edges import Edges
    from fleetctl.workflow.matrix import AskedMatrix

    Followed = tuple[AskedMatrix, CampaignEnd, float]

LostAfter = Annotated[
    float,
    typer.Option(
        "--lost-after",
        metavar="SECONDS",
        callback=finite,
        min=1.0,
        help="Silence after which this worker's cells go to others.",
    ),
]


def worker(
    context: typer.Context,
    queue: QueueAddress = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when no campaign has anything left.")
    ] = False,
    lost_after: LostAfter = 60.0,
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores",
            min=1,
            help="Shards of trials' load driven at once; default: one a core.",
            show_default=False,
        ),
    ] = None,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
) -> None:
    """Measure cells of matrices that others put on a queue, on the hosts of an inventory."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.clock import SystemClock
    from fleetctl.queue.address import parse_address
    from fleetctl.queue.opening import joined
    from fleetctl.workflow.worker import Worker

    console = Console()
    if queue is None:
        raise missing(context, "option '--queue'")
    address = parse_address(queue)
    fleet = the_inventory(inventory, console)
    with (
        edges(runs, console) as outside,
        joined(
            address, outside.holder, SystemClock(), lost_after_s=lost_after, say=console.say
        ) as here,
    ):
        console.say(f"worker {here.engine.worker} on {address}")
        root = runs / ".workers" / here.engine.worker
        at_once = cores or len(os.sched_getaffinity(0))
        Worker(outside, fleet, here, root, at_once).run(until_done=until_done)


def start_on_queue(
    spec: Path,
    queue: str,
    *,
    shards: int,
    inventory: Path | None,
    runs: Path,
    fail_fast: bool,
) -> Followed:
    """Put a matrix on a queue and follow it to its end."""
    from fleetctl.workflow.matrix import read_matrix
    from fleetctl.workflow.queued_matrix import follow, put_matrix

    asked = read_matrix(spec)
    with _on_queue(queue, inventory, runs) as (outside, fleet, here, address):
        folder = put_matrix(outside, fleet, asked, here, address, shards=shards)
        with folder.claimed():
            end = follow(outside, folder, here, fails_fast=fail_fast)
        return asked, end, outside.clock.now_s()


def resume_on_queue(
    folder: RunFolder,
    spec: Path | None,
    queue: str,
    *,
    inventory: Path | None,
    runs: Path,
    fail_fast: bool,
) -> Followed:
    """Attach to a matrix on a queue again, and follow it to its end."""
    from fleetctl.workflow.matrix import read_matrix
    from fleetctl.workflow.queued_matrix import follow, go_on_with

    wanted = None if spec is None else read_matrix(spec)
    with (
        folder.claimed(),
        _on_queue(queue, inventory, runs) as (outside, fleet, here, _),
    ):
        asked, done = go_on_with(outside, fleet, folder, wanted, here)
        end = follow(outside, folder, here, reused=done, fails_fast=fail_fast)
        return asked, end, outside.clock.now_s()


def state_on_queue(folder: RunFolder, queue: str) -> CampaignState:
    """Return how a matrix on a queue fares."""
    from fleetctl.clock import SystemClock
    from fleetctl.queue.address import parse_address
    from fleetctl.queue.opening import joined

    with joined(parse_address(queue), "a look", SystemClock(), say=Console().say) as here:
        return here.campaign(folder.run_id).state()


def withdraw_from_queue(folder: RunFolder, queue: str) -> int:
    """Take what waits of a matrix off its queue; returns how many cell runs that was."""
    from fleetctl.clock import SystemClock
    from fleetctl.queue.address import parse_address
    from fleetctl.queue.opening import joined
    from fleetctl.workflow.queued_matrix import withdraw

    console = Console()
    with joined(parse_address(queue), "a withdrawal", SystemClock(), say=console.say) as here:
        count = withdraw(folder, here)
    console.say(f"{folder.run_id}: {count} cell runs are off the queue; those under way end")
    return count


@contextmanager
def _on_queue(
    queue: str, inventory: Path | None, runs: Path
) -> Iterator[tuple[Edges, Inventory, Joined, str]]:
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.clock import SystemClock
    from fleetctl.queue.address import parse_address
    from fleetctl.queue.opening import joined

    console = Console()
    address = parse_address(queue)
    fleet = the_inventory(inventory, console)
    with (
        edges(runs, console) as outside,
        joined(address, outside.holder, SystemClock(), say=console.say) as here,
    ):
        yield outside, fleet, here, str(address)
