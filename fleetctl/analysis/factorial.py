"""Fractions of a two-level design: what can't be told apart, and the resolution that names it.

A generator `e = a*b*c` makes the word `abce`, whose column is constant over the fraction; products
of words are words, too. An effect times a word is the same column: its alias.

Source: Box, Hunter & Hunter 2005, ch. 6.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Word = frozenset[str]
_ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")


@dataclass(frozen=True)
class Fraction:
    """A regular fraction of a two-level design.

    Attributes:
        factors: of the design, in order.
        words: the defining relation, without the identity; empty for a full design.
    """

    factors: tuple[str, ...]
    words: tuple[Word, ...]

    @property
    def resolution(self) -> int | None:
        """Length of the shortest word; None for a full design, in which nothing is aliased."""
        return min((len(word) for word in self.words), default=None)

    @property
    def resolution_name(self) -> str:
        """The resolution as people write it: III, IV, V."""
        number = self.resolution
        if number is None:
            return "full"
        return _ROMAN[number] if number < len(_ROMAN) else str(number)

    def aliases(self, effect: Iterable[str], *, longest: int = 2) -> tuple[Word, ...]:
        """Return the effects of at most `longest` factors that share the column of an effect."""
        own = frozenset(effect)
        found = {own ^ word for word in self.words}
        kept = [alias for alias in found if 0 < len(alias) <= longest]
        return tuple(sorted(kept, key=lambda alias: (len(alias), self._places(alias))))

    def spelled(self, effect: Iterable[str]) -> str:
        """Return an effect as people write it, factors in the order of the design."""
        return " x ".join(sorted(effect, key=self.factors.index))

    def _places(self, effect: Word) -> list[int]:
        return sorted(self.factors.index(name) for name in effect)


def fraction_of(
    factors: Sequence[str], generators: Iterable[tuple[str, Sequence[str]]]
) -> Fraction:
    """Return the fraction that generators make: (factor, its parents) each."""
    first = [frozenset([factor, *parents]) for factor, parents in generators]
    words: set[Word] = set()
    for size in range(1, len(first) + 1):
        for chosen in itertools.combinations(first, size):
            product: Word = frozenset()
            for word in chosen:
                product ^= word
            words.add(product)
    return Fraction(
        tuple(factors), tuple(sorted(words, key=lambda word: (len(word), sorted(word))))
    )
