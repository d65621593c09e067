"""Which combination of levels tells best where sessions are bad: a description, not a test.

Every conjunction of a few levels splits the cells in two; the one is taken whose two rates make
the counts most probable, less a fine for each level it names (half the logarithm of the sessions,
as in the Bayesian information criterion), so that a shorter one wins where a longer adds nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleetctl.analysis.matrix_effects import Factor, MatrixCell

MOST_LEVELS = 4


@dataclass(frozen=True)
class Conjunction:
    """Cells at all of some levels against the rest.

    Attributes:
        levels: (factor, level) pairs.
        inside_rate: of the cells at all of them.
        outside_rate: of the others.
        bad_share: share of all bad sessions that it holds.
    """

    levels: tuple[tuple[str, str], ...]
    inside_rate: float
    outside_rate: float
    bad_share: float


def best_conjunction(factors: Sequence[Factor], cells: Sequence[MatrixCell]) -> Conjunction | None:
    """Return the combination of levels under which the rate is highest, by the rule above.

    None when no combination is better than one rate for all cells.
    """
    bad = sum(cell.counts.bad for cell in cells)
    sessions = sum(cell.counts.sessions for cell in cells)
    if not bad:
        return None
    best, found = _log_likelihood(bad, sessions), None
    for levels in _conjunctions(factors):
        inside = [c for c in cells if all(c.levels[name] == level for name, level in levels)]
        a, n = sum(c.counts.bad for c in inside), sum(c.counts.sessions for c in inside)
        if not 0 < n < sessions or a * (sessions - n) <= (bad - a) * n:
            continue
        told = _log_likelihood(a, n) + _log_likelihood(bad - a, sessions - n)
        told -= len(levels) * math.log(sessions) / 2
        if told > best:
            best = told
            found = Conjunction(levels, a / n, (bad - a) / (sessions - n), a / bad)
    return found


def _conjunctions(factors: Sequence[Factor]) -> Iterator[tuple[tuple[str, str], ...]]:
    for size in range(1, min(MOST_LEVELS, len(factors)) + 1):
        for chosen in itertools.combinations(factors, size):
            names = [factor.name for factor in chosen]
            for levels in itertools.product(*(factor.levels for factor in chosen)):
                yield tuple(zip(names, levels, strict=True))


def _log_likelihood(bad: int, sessions: int) -> float:
    """Return the log-likelihood of a count at its own rate."""
    clean = sessions - bad
    return sum(part * math.log(part / sessions) for part in (bad, clean) if part)
