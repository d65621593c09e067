"""Generators of a fractional design: `canary = runner*keys` says which level follows from which.

Levels are bits: 0 is the baseline's level, 1 the other. A generated factor's bit is the sum of its
parents' bits, modulo 2; so the baseline cell, all zero, is always in the fraction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetctl.spec.nearest import nearest

_EQUATION = re.compile(r"\s*([^\s=*]+)\s*=\s*([^=]+?)\s*\Z")


@dataclass(frozen=True)
class Generator:
    """One equation.

    Attributes:
        factor: whose level follows.
        parents: the factors it follows from, two or more.
    """

    factor: str
    parents: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.factor} = {'*'.join(self.parents)}"

    def bit(self, bits: Mapping[str, int]) -> int:
        """Return the bit of the generated factor."""
        return sum(bits[parent] for parent in self.parents) % 2


def parse_generator(text: str) -> Generator:
    """Return the generator that a text such as `canary = runner*keys` says.

    Raises:
        ValueError: it says something else.
    """
    match = _EQUATION.match(text)
    parents = tuple(part.strip() for part in match[2].split("*")) if match else ()
    if match is None or len(parents) < 2 or not all(parents):
        raise ValueError(f"`{text}` is no generator; write one as `canary = runner*keys`")
    if len(set(parents)) != len(parents) or match[1] in parents:
        raise ValueError(f"generator `{text}` names a factor twice")
    return Generator(match[1], parents)


def half_fraction(two_level: Iterable[str]) -> Generator:
    """Return the generator of the best half: the last factor follows from all the others.

    Raises:
        ValueError: there are fewer than three factors of two levels.
    """
    names = tuple(two_level)
    if len(names) < 3:
        raise ValueError(
            'fraction = "half" needs three factors of two levels or more: with fewer, main '
            "effects would be aliased with each other"
        )
    return Generator(names[-1], names[:-1])


def check_generators(
    generators: Iterable[Generator], levels: Mapping[str, int]
) -> tuple[Generator, ...]:
    """Return the generators, or raise ValueError for what can't be generated.

    Args:
        generators: as parsed.
        levels: number of levels of every factor, by name.
    """
    known = tuple(generators)
    generated = [generator.factor for generator in known]
    for generator in known:
        for name in (generator.factor, *generator.parents):
            if name not in levels:
                raise ValueError(f"unknown factor `{name}`{nearest(name, levels)}")
            if levels[name] != 2:
                raise ValueError(
                    f"generator `{generator}` needs factors of two levels, and `{name}` has "
                    f"{levels[name]}"
                )
        for parent in generator.parents:
            if parent in generated:
                raise ValueError(
                    f"generator `{generator}` follows from `{parent}`, which is generated itself"
                )
    if len(set(generated)) != len(generated):
        raise ValueError("two generators give the same factor")
    return known
