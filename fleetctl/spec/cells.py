"""From factors to cells: product or fraction, less what is excluded, and what is included."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl.spec.experiment import Patch, Workload
from fleetctl.spec.generators import Generator

if TYPE_CHECKING:
    from fleetctl.spec.matrix import Factor, Level, Matrix

Levels = tuple[tuple[str, str], ...]
Rule = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Cell:
    """One combination of levels.

    Attributes:
        levels: (factor, level) pairs in the order of the factors.
        patches: of all its levels, after those of every cell.
        env: flags, likewise.
        workload: the matrix's, with what its levels override.
        service: the levels of factors that change what runs on the host; cells that differ in
            the workload only share it.
    """

    levels: Levels
    patches: tuple[Patch, ...]
    env: tuple[tuple[str, str | bool], ...]
    workload: Workload
    service: str

    @property
    def name(self) -> str:
        """The levels joined: `runner=captured,indexer=transient`."""
        return spelled(self.levels)

    @property
    def digest(self) -> str:
        """Hash of what the file says of it, 12 hex digits; names don't count."""
        said = [
            [patch.model_dump() for patch in self.patches],
            self.env,
            self.workload.model_dump(),
        ]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def spelled(levels: Iterable[tuple[str, str]]) -> str:
    """Return levels as people read them."""
    return ",".join(f"{factor}={level}" for factor, level in levels)


def combinations(
    factors: Sequence[Factor], baseline: Mapping[str, str], generators: Sequence[Generator]
) -> Iterator[Levels]:
    """Yield every combination of levels, or the fraction that the generators leave."""
    generated = {generator.factor: generator for generator in generators}
    free = [factor for factor in factors if factor.name not in generated]
    for chosen in itertools.product(*(factor.level for factor in free)):
        levels = {f.name: level.name for f, level in zip(free, chosen, strict=True)}
        bits = {name: int(level != baseline[name]) for name, level in levels.items()}
        for name, generator in generated.items():
            factor = next(factor for factor in factors if factor.name == name)
            levels[name] = _level_at(factor, baseline[name], generator.bit(bits))
        yield tuple((factor.name, levels[factor.name]) for factor in factors)


def _level_at(factor: Factor, baseline: str, bit: int) -> str:
    if not bit:
        return baseline
    return next(level.name for level in factor.level if level.name != baseline)


def cells_of(matrix: Matrix) -> tuple[Cell, ...]:
    """Return the cells of a matrix, the baseline first, then as in the file."""
    rules = matrix.matrix
    found = combinations(matrix.factor, rules.baseline, matrix.generators)
    wanted = [levels for levels in found if not is_excluded(levels, rules.exclude)]
    wanted += [with_baseline(matrix.factor, rules.baseline, rule) for rule in rules.include]
    unique = list(dict.fromkeys(wanted))
    unique.sort(key=lambda levels: dict(levels) != rules.baseline)
    return tuple(_cell(matrix, levels) for levels in unique)


def is_excluded(levels: Levels, rules: Iterable[Rule]) -> bool:
    """Whether a rule names this combination; it may name some factors, and several levels."""
    chosen = dict(levels)
    return any(
        all(chosen[factor] in levels_of(named) for factor, named in rule.items()) for rule in rules
    )


def levels_of(named: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the levels that a rule names: one, or several."""
    return (named,) if isinstance(named, str) else named


def with_baseline(
    factors: Sequence[Factor], baseline: Mapping[str, str], rule: Mapping[str, str]
) -> Levels:
    """Return the cell that an include rule means: factors it does not name are at baseline."""
    chosen = {**baseline, **rule}
    return tuple((factor.name, chosen[factor.name]) for factor in factors)


def _cell(matrix: Matrix, levels: Levels) -> Cell:
    chosen = [
        (factor, next(level for level in factor.level if level.name == name))
        for factor, (_, name) in zip(matrix.factor, levels, strict=True)
    ]
    patches = [patch for _, level in chosen for patch in level.patch]
    env = [pair for _, level in chosen for pair in level.env.items()]
    changes = [(factor.name, level.name) for factor, level in chosen if factor.changes_service]
    return Cell(
        levels=levels,
        patches=(*matrix.patch, *patches),
        env=(*matrix.env.items(), *env),
        workload=matrix.workload_with(*(level for _, level in chosen)),
        service=spelled(changes) or "as every cell",
    )


def clashes(factors: Sequence[Factor], common: Level) -> Iterator[str]:
    """Yield what two factors would both set in one cell: nobody could say which one holds.

    Args:
        factors: of the matrix.
        common: patches and flags of every cell, as a level.
    """
    seen: dict[tuple[str, str], str] = {}
    for name in (*common.env, *(patch.target for patch in common.patch)):
        seen["flag" if name in common.env else "patch", name] = "every cell"
    for factor in factors:
        own: dict[tuple[str, str], str] = {}
        for level in factor.level:
            own |= {("flag", name): level.name for name in level.env}
            own |= {("patch", patch.target): level.name for patch in level.patch}
            own |= {("workload key", key): level.name for key in level.workload}
        for (kind, name), level_name in own.items():
            if (kind, name) in seen:
                yield (
                    f"{kind} `{name}` is set by {seen[kind, name]} and by factor "
                    f"`{factor.name}` (level `{level_name}`): one cell can't have both"
                )
        seen |= dict.fromkeys(own, f"factor `{factor.name}`")
