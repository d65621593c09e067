"""Deal the runs of a matrix to equal hosts so that no factor goes along with a host.

Each run has a home among the hosts of its block: the one at its position in the order, counted
round. A host takes the runs at home there first. Two cells of one replicate are exchanged where
that spreads the levels of a factor, or of a named interaction, more evenly over the hosts.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetctl.analysis.matrix_order import OrderedRun

_MOST_TRIES = 40
_MOST_SWAPS = 20_000
# a cell that is always on one host is no harm by itself, only the lesser beauty
_CELL_WEIGHT = 0.01

Columns = NDArray[np.float64]
Term = tuple[str, ...]
Coded = Mapping[Term, Columns]


@dataclass(frozen=True)
class Terms:
    """What must not go along with a host.

    Attributes:
        levels: of each cell, factor -> level.
        interactions: named pairs of factors.
    """

    levels: Sequence[Mapping[str, str]]
    interactions: Sequence[tuple[str, str]] = ()

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Every factor, then every named interaction, as the factors it is made of."""
        return (*((factor,) for factor in self.levels[0]), *self.interactions)

    def value(self, term: Sequence[str], cell: int) -> tuple[str, ...]:
        """Return the level of a term in a cell."""
        return tuple(self.levels[cell][factor] for factor in term)


def home(position: int, hosts: int) -> int:
    """Return the index of the host at which the run of a position is at home."""
    return position % hosts


def balanced_order(
    order: Sequence[OrderedRun], terms: Terms, hosts: Mapping[str, int], seed: int
) -> tuple[OrderedRun, ...]:
    """Return the order with cells exchanged inside replicates, so that hosts get alike ones.

    The baseline stays where it is: first and last in its block. What is balanced already stays as
    it is, and the same arguments always give the same order.

    Args:
        order: as drawn.
        terms: what has to be spread.
        hosts: how many each block has.
        seed: of the tries, where the first one leaves something that goes along with a host.
    """
    found = list(order)
    for block, number in hosts.items():
        own = [position for position, one in enumerate(order) if one.block == block]
        if number > 1 and own:
            cells = _dealt([order[p] for p in own], own, terms, number, seed)
            for position, cell in zip(own, cells, strict=True):
                found[position] = OrderedRun(cell, order[position].run, block)
    return tuple(found)


def confounded_with_hosts(
    order: Sequence[OrderedRun], terms: Terms, hosts: Mapping[str, int]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the terms of each block that can't be told from its hosts; blocks without are absent.

    A term is one where the model with an effect of every host knows less of it than the model
    without: a factor in the model of all factors, an interaction in the one with all of them, too.
    """
    found = {}
    for block, number in hosts.items():
        own = [(position, one.cell) for position, one in enumerate(order) if one.block == block]
        if number > 1 and own:
            homes = [home(position, number) for position, _ in own]
            lost = _lost([cell for _, cell in own], homes, terms)
            if lost:
                found[block] = lost
    return found


def _dealt(
    runs: Sequence[OrderedRun], positions: Sequence[int], terms: Terms, hosts: int, seed: int
) -> list[int]:
    """Return the cells of a block's runs, spread over the hosts."""
    homes = [home(position, hosts) for position in positions]
    found: list[tuple[int, int, float, list[int]]] = []
    for number in range(_MOST_TRIES):
        chance = random.Random(f"{seed}/{runs[0].block}/hosts/{number}")  # noqa: S311 - an order, not a secret
        board = _Board([run.cell for run in runs], homes, terms)
        swaps = _swaps(runs, chance)
        if number:  # another start, where the drawn one led nowhere
            for one, other in itertools.islice(_swaps(runs, chance), len(runs)):
                board.swap(one, other)
        board.improve(swaps)
        lost = _lost(board.cells, homes, terms)
        factors = sum(len(term) == 1 for term in lost)
        found.append((factors, len(lost), board.unevenness, board.cells))
        if not lost or len(runs) * number > _MOST_SWAPS // 100:
            break
    return min(found, key=lambda each: each[:3])[3]


def _swaps(runs: Sequence[OrderedRun], chance: random.Random) -> Iterator[tuple[int, int]]:
    """Yield pairs of places of one replicate whose cells may be exchanged."""
    replicates: dict[int, list[int]] = {}
    for place, run in enumerate(runs):
        if not (run.cell == 0 and place in (0, len(runs) - 1)):
            replicates.setdefault(run.run, []).append(place)
    pairs = [pair for found in replicates.values() for pair in itertools.combinations(found, 2)]
    chance.shuffle(pairs)
    yield from pairs[:_MOST_SWAPS]


class _Board:
    """Which cells are on which hosts, and how unevenly."""

    def __init__(self, cells: list[int], homes: Sequence[int], terms: Terms) -> None:
        self.cells = cells
        self._homes = homes
        share = [homes.count(host) / len(homes) for host in range(max(homes) + 1)]
        # of each term: level -> by how much every host has more of it than its share
        self._more: list[dict[Term, list[float]]] = []
        self._weights: list[float] = []
        self._values: list[list[Term]] = []
        known = range(len(terms.levels))
        columns: list[tuple[float, list[Term]]] = [
            (1.0, [terms.value(term, cell) for cell in known]) for term in terms.names
        ]
        columns.append((_CELL_WEIGHT, [(str(cell),) for cell in known]))
        for weight, values in columns:
            more = {value: [0.0] * len(share) for value in values}
            for cell, host in zip(cells, homes, strict=True):
                row = more[values[cell]]
                row[host] += 1
                for other, part in enumerate(share):
                    row[other] -= part
            self._more.append(more)
            self._weights.append(weight)
            self._values.append(values)

    @property
    def unevenness(self) -> float:
        """Squared deviations from every host's share, over all levels of all terms."""
        return sum(
            weight * sum(x * x for row in more.values() for x in row)
            for weight, more in zip(self._weights, self._more, strict=True)
        )

    def gain(self, one: int, other: int) -> float:
        """Return by how much exchanging the cells of two places lowers the unevenness."""
        a, b = self._homes[one], self._homes[other]
        gained = 0.0
        for weight, values, more in zip(self._weights, self._values, self._more, strict=True):
            left, right = values[self.cells[one]], values[self.cells[other]]
            if a != b and left != right:
                here, there = more[left], more[right]
                gained += weight * 2 * (here[a] - here[b] + there[b] - there[a] - 2)
        return gained

    def swap(self, one: int, other: int) -> None:
        """Exchange the cells of two places."""
        a, b = self._homes[one], self._homes[other]
        for values, more in zip(self._values, self._more, strict=True):
            left, right = values[self.cells[one]], values[self.cells[other]]
            for level, away, to in ((left, a, b), (right, b, a)):
                more[level][away] -= 1
                more[level][to] += 1
        self.cells[one], self.cells[other] = self.cells[other], self.cells[one]

    def improve(self, swaps: Iterator[tuple[int, int]]) -> None:
        """Exchange while it helps."""
        pairs = list(swaps)
        left = _MOST_SWAPS
        has_helped = True
        while has_helped and left > 0:
            has_helped = False
            left -= len(pairs)
            for one, other in pairs:
                if self.gain(one, other) > 1e-9:
                    self.swap(one, other)
                    has_helped = True


def _lost(cells: Sequence[int], homes: Sequence[int], terms: Terms) -> tuple[tuple[str, ...], ...]:
    """Return the terms of which less is known once every host has an effect of its own."""
    factors = {factor: _coded([row[factor] for row in terms.levels]) for factor in terms.levels[0]}
    columns: Coded = {
        term: _product([factors[name] for name in term])[list(cells)] for term in terms.names
    }
    alone: Coded = {term: columns[term] for term in columns if len(term) == 1}
    one = np.ones((len(cells), 1))
    hosts = np.hstack([one, _coded(list(homes))])
    return tuple(
        term
        for term in columns
        for model in [alone if term in alone else columns]
        if _known(model, term, beside=hosts) < _known(model, term, beside=one)
    )


def _known(columns: Coded, term: Term, beside: Columns) -> int:
    """Return how many of a term's degrees of freedom nothing else stands for."""
    others = [found for name, found in columns.items() if name != term]
    return _rank([beside, *others, columns[term]]) - _rank([beside, *others])


def _rank(parts: Sequence[Columns]) -> int:
    return int(np.linalg.matrix_rank(np.hstack(parts)))


def _coded(values: Sequence[object]) -> Columns:
    """Return a factor's columns, whose effects add up to nothing over its levels."""
    levels = sorted(set(values), key=str)
    return np.array(
        [
            [float(value == level) - float(value == levels[-1]) for level in levels[:-1]]
            for value in values
        ]
    ).reshape(len(values), len(levels) - 1)


def _product(factors: Sequence[Columns]) -> Columns:
    """Return the columns of an interaction: every product of one column of each factor."""
    found = factors[0]
    for other in factors[1:]:
        found = (found[:, :, None] * other[:, None, :]).reshape(len(found), -1)
    return found
