"""A matrix: factors with levels, expanded to cells with stable names."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass

from pydantic import Field, field_validator, model_validator

from fleetctl.spec.experiment import (
    Flags,
    Head,
    Name,
    Patch,
    Ready,
    ToolcallSpec,
    Trials,
    Value,
    VerdictSpec,
    Workload,
    checked_flags,
)
from fleetctl.spec.nearest import nearest
from fleetctl.spec.quantities import Duration


class Level(Value):
    """One level of a factor: what it changes on the host.

    Attributes:
        name: of the level, as the table shows it.
        patch: patches it brings.
        env: flags it sets or unsets.
    """

    name: Name
    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)

    _flags = field_validator("env")(checked_flags)


class Factor(Value):
    """One thing that varies.

    Attributes:
        name: of the factor.
        observer: it only looks: always part of the model, and what it moves is called tainted.
        level: two levels or more.
    """

    name: Name
    observer: bool = False
    level: tuple[Level, ...] = Field(min_length=2)

    @field_validator("level")
    @classmethod
    def _distinct(cls, levels: tuple[Level, ...]) -> tuple[Level, ...]:
        names = [level.name for level in levels]
        if len(set(names)) != len(names):
            raise ValueError("level names must differ")
        return levels


class MatrixSpec(Value):
    """Which cells are run.

    Attributes:
        baseline: one level of every factor: the cell the others are compared with.
        exclude: combinations that are left out; a rule may name some factors only.
        interactions: pairs of factors whose interaction is in the model.
    """

    baseline: dict[str, str]
    exclude: tuple[dict[str, str], ...] = ()
    interactions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One combination of levels.

    Attributes:
        levels: (factor, level) pairs in the order of the factors.
        digest: stable content hash: the same cell of an unchanged file has the same digest.
    """

    levels: tuple[tuple[str, str], ...]
    patches: tuple[Patch, ...]
    env: tuple[tuple[str, str | bool], ...]
    digest: str

    @property
    def name(self) -> str:
        """The levels joined: `runner=captured,indexer=transient`."""
        return ",".join(f"{factor}={level}" for factor, level in self.levels)


class Matrix(Value):
    """The product of factors, measured cell by cell.

    Attributes:
        experiment: name, reason and target.
        matrix: baseline, exclusions, interactions.
        factor: what varies.
        workload: as in an experiment.
        trials: as in an experiment; `runs` counts per cell.
        verdict: as in an experiment.
        ready: as in an experiment.
        lease: as in an experiment.
    """

    experiment: Head
    matrix: MatrixSpec
    factor: tuple[Factor, ...] = Field(min_length=1)
    workload: Workload = ToolcallSpec(kind="toolcall")
    trials: Trials = Trials()
    verdict: VerdictSpec = VerdictSpec()
    ready: Ready = Ready()
    lease: Duration = 60.0

    @model_validator(mode="after")
    def _names_exist(self) -> Matrix:
        named = [self.matrix.baseline, *self.matrix.exclude]
        for choice in named:
            for factor, level in choice.items():
                self._check_level(factor, level)
        if set(self.matrix.baseline) != {factor.name for factor in self.factor}:
            raise ValueError("`baseline` names one level of every factor")
        for pair in self.matrix.interactions:
            for name in pair:
                self._levels_of(name)
        if self._excluded(tuple(self.matrix.baseline.items())):
            raise ValueError("the baseline cell is excluded")
        return self

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells in the order of the file, the baseline first."""
        product = itertools.product(*(factor.level for factor in self.factor))
        cells = [self._cell(levels) for levels in product]
        kept = [cell for cell in cells if not self._excluded(cell.levels)]
        return tuple(sorted(kept, key=lambda cell: not self.is_baseline(cell)))

    def is_baseline(self, cell: Cell) -> bool:
        """Whether the others are compared with this cell."""
        return dict(cell.levels) == self.matrix.baseline

    def _cell(self, levels: tuple[Level, ...]) -> Cell:
        patches = tuple(patch for level in levels for patch in level.patch)
        env = tuple(pair for level in levels for pair in level.env.items())
        names = tuple((f.name, level.name) for f, level in zip(self.factor, levels, strict=True))
        content = json.dumps(
            [names, [patch.model_dump() for patch in patches], env], sort_keys=True
        )
        return Cell(names, patches, env, hashlib.sha256(content.encode()).hexdigest()[:12])

    def _excluded(self, levels: tuple[tuple[str, str], ...]) -> bool:
        chosen = dict(levels)
        return any(
            all(chosen[factor] == level for factor, level in rule.items())
            for rule in self.matrix.exclude
        )

    def _levels_of(self, factor: str) -> list[str]:
        for known in self.factor:
            if known.name == factor:
                return [level.name for level in known.level]
        raise ValueError(
            f"unknown factor `{factor}`{nearest(factor, [f.name for f in self.factor])}"
        )

    def _check_level(self, factor: str, level: str) -> None:
        levels = self._levels_of(factor)
        if level not in levels:
            raise ValueError(f"factor `{factor}` has no level `{level}`{nearest(level, levels)}")
