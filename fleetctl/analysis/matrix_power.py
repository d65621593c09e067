"""What the main effects of a matrix can show, before any host is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.matrix_effects import Factor
from fleetctl.analysis.power import Assumed, power, runs_needed, smallest_visible

MOST_RUNS = 400


@dataclass(frozen=True)
class EffectPower:
    """What one level's comparison with the baseline's level can show.

    Attributes:
        factor: that varies.
        level: that is compared.
        baseline_runs: runs at the factor's baseline level, in cells with a partner at this one.
        runs: runs of those partners.
        halved: probability that a rate halved by the level is seen.
        smallest_visible: the highest rate at this level that is told from the baseline's with
            the wanted power; None where not even 0 is.
        runs_for_half: runs per level that see the half; None beyond MOST_RUNS.
    """

    factor: str
    level: str
    baseline_runs: int
    runs: int
    halved: float
    smallest_visible: float | None
    runs_for_half: int | None


def main_effect_power(
    factors: Sequence[Factor],
    cells: Sequence[Mapping[str, str]],
    runs_per_cell: int,
    baseline_rate: float,
    assumed: Assumed,
) -> tuple[EffectPower, ...]:
    """Return the power of each level's comparison, cells that differ in nothing else pooled.

    The level of the test is shared over all comparisons, as Holm's first step does. The rate is
    the average over the cells at the baseline's level, which other factors may have lowered.

    Args:
        factors: the baseline's level first.
        cells: level of each factor.
        runs_per_cell: replicates.
        baseline_rate: assumed.
        assumed: sessions per run, correlation, level, wanted power.
    """
    compared = [(factor, level) for factor in factors for level in factor.levels[1:]]
    shared = replace(assumed, alpha=assumed.alpha / max(len(compared), 1))
    known: dict[int, tuple[float, float | None]] = {}
    needed = runs_needed(baseline_rate, baseline_rate / 2, shared, MOST_RUNS)
    found = []
    for factor, level in compared:
        base, other = _matched(cells, factor.name, (factor.levels[0], level))
        base, other = base * runs_per_cell, other * runs_per_cell
        fewer = min(base, other)
        if fewer not in known:
            known[fewer] = (
                power(baseline_rate, baseline_rate / 2, fewer, shared),
                smallest_visible(baseline_rate, fewer, shared),
            )
        found.append(EffectPower(factor.name, level, base, other, *known[fewer], needed))
    return tuple(found)


def _matched(
    cells: Sequence[Mapping[str, str]], factor: str, levels: tuple[str, str]
) -> tuple[int, int]:
    """Return how many cells of each level have a partner at the other one."""
    rests = [
        [frozenset(cell.items() - {(factor, level)}) for cell in cells if cell[factor] == level]
        for level in levels
    ]
    both = set(rests[0]) & set(rests[1])
    return (sum(rest in both for rest in rests[0]), sum(rest in both for rest in rests[1]))
