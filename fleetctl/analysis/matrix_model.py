"""The model of a matrix: its factors and cells, the terms of its effects, and their columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.counts import ArmCounts

Term = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Factor:
    """One thing that varies over the cells.

    Attributes:
        name: how it is called.
        levels: its levels; the first is the baseline the others are compared with.
        observer: it only looks, so an effect of it taints what was measured with it.
    """

    name: str
    levels: tuple[str, ...]
    observer: bool = False


@dataclass(frozen=True)
class MatrixCell:
    """One cell's runs on one host.

    Attributes:
        levels: level of each factor.
        counts: the runs.
        block: host; hosts enter the model as blocks.
    """

    levels: Mapping[str, str]
    counts: ArmCounts
    block: str = ""


def measured_levels(factors: Sequence[Factor], cells: Sequence[MatrixCell]) -> tuple[Factor, ...]:
    """Return the factors with the levels that some cell has; of those the first is the baseline.

    The column of a level without a run is constant: left in, it would keep the model from telling
    anything of any factor.
    """
    seen = {pair for cell in cells for pair in cell.levels.items()}
    return tuple(
        replace(factor, levels=tuple(at for at in factor.levels if (factor.name, at) in seen))
        for factor in factors
    )


def main_terms(factors: Sequence[Factor]) -> list[Term]:
    """Return the levels of every factor beside its baseline's."""
    return [((factor.name, level),) for factor in factors for level in factor.levels[1:]]


def terms_of(
    factors: Sequence[Factor],
    interactions: Sequence[tuple[str, str]],
    cells: Sequence[MatrixCell],
) -> list[Term]:
    """Return main effects, and interactions of levels that met in a cell."""
    by_name = {factor.name: factor for factor in factors}
    pairs: list[Term] = [
        ((a, level_a), (b, level_b))
        for a, b in interactions
        for level_a in by_name[a].levels[1:]
        for level_b in by_name[b].levels[1:]
    ]
    return main_terms(factors) + [pair for pair in pairs if any(is_at(c, pair) for c in cells)]


def is_at(cell: MatrixCell, term: Term) -> bool:
    """Whether a cell is at all levels of a term."""
    return all(cell.levels[factor] == level for factor, level in term)


def _coded(cell: MatrixCell, term: Term, share: Mapping[str, float]) -> float:
    """Return the column of a term: 1 at its level, less the share of cells there.

    Centred, a main effect is the average over the other factor's levels even when their
    interaction is in the model.
    """
    return math.prod((cell.levels[name] == level) - share[name] for name, level in term)


def design_of(
    factors: Sequence[Factor], cells: Sequence[MatrixCell], terms: Sequence[Term]
) -> tuple[list[list[float]], list[int], list[int]]:
    """Return columns of terms and blocks, bad and all sessions, a row for each run."""
    hosts = sorted({cell.block for cell in cells})[1:]
    share = {factor.name: 1 / len(factor.levels) for factor in factors}
    rows = [(cell, run) for cell in cells for run in cell.counts.clusters]
    design = [
        [*(_coded(cell, term, share) for term in terms), *(float(cell.block == h) for h in hosts)]
        for cell, _ in rows
    ]
    return design, [run.bad for _, run in rows], [run.sessions for _, run in rows]
