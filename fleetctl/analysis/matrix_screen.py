"""Interactions that nobody declared: found after the fact, they only say what to ask next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_effects import (
    FEWEST_BAD_FOR_A_MODEL,
    Factor,
    MatrixCell,
    adjust_p,
    interaction_p,
)
from fleetctl.errors import InputError

FALSE_DISCOVERIES = 0.1
MOST_PAIRS = 28


@dataclass(frozen=True)
class Screened:
    """A pair of factors whose interaction was not declared.

    Attributes:
        pair: the factors.
        p: smallest of its levels' p, times their number.
        p_bh: adjusted for the share of false discoveries over all pairs.
    """

    pair: tuple[str, str]
    p: float
    p_bh: float


def undeclared_interactions(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    declared: Sequence[tuple[str, str]],
    history: Dispersion | None = None,
) -> tuple[Screened, ...]:
    """Return pairs that would survive screening at 10 % false discoveries, the likeliest first.

    Each pair is added to the declared model by itself. Pairs that the design can't estimate are
    left out, as are all when few sessions are bad or pairs are many.
    """
    known = {frozenset(pair) for pair in declared}
    pairs = [
        (a.name, b.name)
        for a, b in itertools.combinations(factors, 2)
        if frozenset((a.name, b.name)) not in known
    ]
    if len(pairs) > MOST_PAIRS or sum(c.counts.bad for c in cells) < FEWEST_BAD_FOR_A_MODEL:
        return ()
    raw = [_p_of(factors, cells, declared, pair, history) for pair in pairs]
    adjusted = adjust_p(raw, "fdr_bh")
    found = [
        Screened(pair, p, bh)
        for pair, p, bh in zip(pairs, raw, adjusted, strict=True)
        if p is not None and bh is not None and bh < FALSE_DISCOVERIES
    ]
    return tuple(sorted(found, key=lambda one: one.p))


def _p_of(
    factors: Sequence[Factor],
    cells: Sequence[MatrixCell],
    declared: Sequence[tuple[str, str]],
    pair: tuple[str, str],
    history: Dispersion | None,
) -> float | None:
    try:
        return interaction_p(factors, cells, declared, pair, history)
    except InputError:
        return None
