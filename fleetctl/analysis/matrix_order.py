"""In which order the runs of a matrix are made: replicates dealt to blocks, shuffled inside them.

A block is a set of equal hosts. Every replicate is a complete set of cells in one block, so that
blocks can't be mistaken for factors.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class OrderedRun:
    """One run in the order.

    Attributes:
        cell: index of the cell; 0 is the baseline.
        run: number of the replicate.
        block: where it is made.
    """

    cell: int
    run: int
    block: str


def deal_replicates(runs: int, sites: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the replicates of each block, in proportion to its sites.

    Each goes to the block with the most sites for each replicate (d'Hondt), the first one named
    where blocks are equal. A block may get none.
    """
    dealt: dict[str, list[int]] = {block: [] for block in sites}
    for run in range(runs):
        block = max(sites, key=lambda name: sites[name] / (len(dealt[name]) + 1))
        dealt[block].append(run)
    return {block: tuple(found) for block, found in dealt.items()}


def seeded_order(
    cells: int, replicates: Mapping[str, Sequence[int]], seed: int
) -> tuple[OrderedRun, ...]:
    """Return each replicate shuffled by itself, so that drift meets all cells alike.

    The first run of a block is the baseline's; the last one, too, where it has a replicate more:
    a drift shows between them.
    """
    return tuple(
        OrderedRun(cell, run, block)
        for block, found in replicates.items()
        for place, run in enumerate(found)
        for cell in _shuffled(
            cells,
            f"{seed}/{block}/{run}",
            first=place == 0,
            last=place == len(found) - 1 and place > 0,
        )
    )


def _shuffled(cells: int, seed: str, *, first: bool, last: bool) -> list[int]:
    order = list(range(cells))
    random.Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
    if first or last:
        order.remove(0)
        order.insert(0 if first else len(order), 0)
    return order


def fewest_restarts_order(
    services: Sequence[str],
    distance: Sequence[Sequence[int]],
    replicates: Mapping[str, Sequence[int]],
    seed: int,
) -> tuple[OrderedRun, ...]:
    """Return all runs of one service one after the other, and services by how little differs.

    Args:
        services: what runs on the host in each cell, by index of the cell.
        distance: between two cells, in factors that differ.
        replicates: of each block.
        seed: decides between services that are equally near.
    """
    path = _nearest_neighbours(services, distance, seed)
    return tuple(
        OrderedRun(cell, run, block)
        for block, found in replicates.items()
        for service in path
        for run in found
        for cell, own in enumerate(services)
        if own == service
    )


def _nearest_neighbours(
    services: Sequence[str], distance: Sequence[Sequence[int]], seed: int
) -> list[str]:
    """Return a short way through all services, from the baseline's."""
    first_cell = {service: services.index(service) for service in services}
    left = list(first_cell)
    random.Random(f"{seed}/services").shuffle(left)  # noqa: S311 - an order, not a secret
    path = [services[0]]
    left.remove(services[0])
    while left:
        here = first_cell[path[-1]]
        nearest = min(left, key=lambda service: distance[here][first_cell[service]])
        path.append(nearest)
        left.remove(nearest)
    return path
