"""A matrix as a map: half of the factors down, half across, every cell a shade and a rate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from fleetctl.analysis.matrix_effects import Factor, MatrixCell
from fleetctl.report.numbers import percent
from fleetctl.report.tables import Table

SHADES = " ░▒▓█"
NOT_MEASURED = "-"
WIDEST = 88


def heat_table(factors: Sequence[Factor], cells: Sequence[MatrixCell]) -> Table:
    """Return the map; shades go from none bad to the highest rate, and need no colour.

    The last factors go across, as many of them as fit the width of a terminal.
    """
    across = _across(factors)
    down = factors[: len(factors) - len(across)]
    rates = _rates(cells)
    highest = max(rates.values(), default=0.0)
    columns = _measured(rates, _combinations(across))
    header = (*(factor.name for factor in down), *("/".join(c.values()) for c in columns))
    rows = tuple(
        (*row.values(), *(_entry(rates, row | column, highest) for column in columns))
        for row in _measured(rates, _combinations(down))
    )
    across_names = "/".join(factor.name for factor in across)
    title = f"Rates by {across_names} (shade: share of the highest, {percent(highest)})"
    return Table(title, header, rows)


def _across(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    for number in range(math.ceil(len(factors) / 2), 0, -1):
        chosen = factors[-number:]
        columns = ["/".join(c.values()) for c in _combinations(chosen)]
        left = sum(max(len(level) for level in (f.name, *f.levels)) + 2 for f in factors[:-number])
        if left + sum(max(len(name), 8) + 2 for name in columns) <= WIDEST:
            return tuple(chosen)
    return tuple(factors[-1:])


def _combinations(factors: Sequence[Factor]) -> list[dict[str, str]]:
    names = [factor.name for factor in factors]
    return [
        dict(zip(names, levels, strict=True))
        for levels in itertools.product(*(factor.levels for factor in factors))
    ]


def _rates(cells: Sequence[MatrixCell]) -> dict[frozenset[tuple[str, str]], float]:
    bad: dict[frozenset[tuple[str, str]], int] = {}
    sessions: dict[frozenset[tuple[str, str]], int] = {}
    for cell in cells:
        key = frozenset(cell.levels.items())
        bad[key] = bad.get(key, 0) + cell.counts.bad
        sessions[key] = sessions.get(key, 0) + cell.counts.sessions
    return {key: bad[key] / number for key, number in sessions.items() if number}


def _measured(
    rates: dict[frozenset[tuple[str, str]], float], combinations: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Leave out combinations that no measured cell has: fixes are often beside the product."""
    return [c for c in combinations if any(c.items() <= dict(key).items() for key in rates)]


def _entry(
    rates: dict[frozenset[tuple[str, str]], float], levels: dict[str, str], highest: float
) -> str:
    rate = rates.get(frozenset(levels.items()))
    if rate is None:
        return NOT_MEASURED
    shade = 0 if not highest else math.ceil(rate / highest * (len(SHADES) - 1))
    return f"{SHADES[shade] * 2} {percent(rate)}"
