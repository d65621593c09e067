"""A matrix: factors with levels, expanded to cells; what can't be is refused before it is made."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from fleetctl.spec.cells import (
    Cell,
    Levels,
    Rule,
    cells_of,
    clashes,
    combinations,
    is_excluded,
    levels_of,
    spelled,
    with_baseline,
)
from fleetctl.spec.experiment import (
    Head,
    Jit,
    Name,
    Observer,
    Patch,
    ToolcallSpec,
    Trials,
    VerdictSpec,
    Workload,
    checked_workload,
)
from fleetctl.spec.flags import Flags, checked_flags
from fleetctl.spec.generators import (
    Generator,
    check_generators,
    half_fraction,
    parse_generator,
)
from fleetctl.spec.nearest import nearest
from fleetctl.spec.quantities import Duration, Lease
from fleetctl.spec.ready import Ready
from fleetctl.spec.value import Value

MOST_CELLS = 1024
MOST_RUNS = 20_000
_WORKLOAD: TypeAdapter[Workload] = TypeAdapter(Workload)


class Level(Value):
    """One level of a factor: what it changes.

    Attributes:
        name: of the level, as the table shows it.
        patch: patches it brings.
        env: flags it sets or unsets.
        workload: keys of the workload that it overrides.
    """

    name: Name
    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)
    workload: dict[str, Any] = Field(default_factory=dict)

    _flags = field_validator("env")(checked_flags)

    @property
    def says(self) -> tuple[object, ...]:
        """What it changes, without its name."""
        return (self.patch, tuple(sorted(self.env.items())), sorted(self.workload.items()))


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
        for index, level in enumerate(levels):
            for other in levels[:index]:
                if level.says == other.says:
                    raise ValueError(
                        f"levels `{other.name}` and `{level.name}` are equal: they set the same "
                        "patches, flags and workload"
                    )
        return levels

    @property
    def changes_service(self) -> bool:
        """Whether a level changes what runs on the host, and not the workload only."""
        return any(level.patch or level.env for level in self.level)


class MatrixSpec(Value):
    """Which cells are run, and in which order.

    Attributes:
        baseline: one level of every factor: the cell the others are compared with.
        fraction: `full`, or `half`: the last factor of two levels follows from all the others.
        generators: a smaller fraction, such as `["canary = runner*keys"]`; `plan` names what
            can't be told apart then.
        exclude: combinations that are left out; a rule may name some factors only, and of each
            one level or a list of levels.
        include: combinations that are added; factors that a rule leaves out are at baseline.
        interactions: pairs of factors whose interaction is in the model.
        order: `seeded` shuffles every repetition; `fewest_restarts` keeps runs of one service
            together, where drift looks like an effect.
        per_machine: how many sites of one machine are measured at once; more than one lets them
            disturb each other.
        patience: how long a campaign without anything to do waits for busy hosts.
    """

    baseline: dict[str, str]
    fraction: Literal["full", "half"] = "full"
    generators: tuple[str, ...] = ()
    exclude: tuple[dict[str, str | tuple[str, ...]], ...] = ()
    include: tuple[dict[str, str], ...] = ()
    interactions: tuple[tuple[str, str], ...] = ()
    order: Literal["seeded", "fewest_restarts"] = "seeded"
    per_machine: int = Field(default=1, ge=1)
    patience: Duration = 600.0

    @model_validator(mode="after")
    def _one_fraction(self) -> MatrixSpec:
        if self.generators and self.fraction == "half":
            raise ValueError('give `generators`, or fraction = "half", not both')
        return self


class Matrix(Value):
    """The product of factors, or a fraction of it, measured cell by cell.

    Attributes:
        experiment: name, reason and target.
        matrix: baseline, fraction, exclusions, interactions, order.
        factor: what varies.
        patch: patches of every cell.
        env: flags of every cell.
        observer: things that look but may perturb: each one that is on has to be a factor.
        workload: as in an experiment; levels may override its keys.
        trials: as in an experiment; `runs` counts per cell.
        verdict: as in an experiment.
        ready: as in an experiment.
        lease: as in an experiment.
        jit: as in an experiment.
    """

    experiment: Head
    matrix: MatrixSpec
    factor: tuple[Factor, ...] = Field(min_length=1)
    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)
    observer: tuple[Observer, ...] = ()
    workload: Workload = ToolcallSpec(kind="toolcall")
    trials: Trials = Trials()
    verdict: VerdictSpec = VerdictSpec()
    ready: Ready = Ready()
    lease: Lease = 60.0
    jit: Jit = Jit()

    _flags = field_validator("env")(checked_flags)

    @model_validator(mode="after")
    def _can_be_made(self) -> Matrix:
        """Check what needs no expansion, then the number of cells, then the cells."""
        self._check_names()
        self._check_trials()
        for clash in clashes(self.factor, self.common):
            raise ValueError(clash)
        self._check_observers()
        self._check_number()
        self._check_rules()
        for factor in self.factor:
            for level in factor.level:
                self.workload_with(level)
        for cell in self.cells():
            checked_workload(cell.workload)
        return self

    @property
    def common(self) -> Level:
        """Patches and flags of every cell."""
        return Level(name="common", patch=self.patch, env=self.env)

    @property
    def generators(self) -> tuple[Generator, ...]:
        """What makes the fraction; empty for the full product."""
        if self.matrix.fraction == "half":
            return (half_fraction(f.name for f in self.factor if len(f.level) == 2),)
        return tuple(parse_generator(text) for text in self.matrix.generators)

    @property
    def product_size(self) -> int:
        """How many cells the product or its fraction has before any is left out."""
        size = math.prod(len(factor.level) for factor in self.factor)
        return size >> len(self.generators)

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells, the baseline first, then in the order of the file."""
        return cells_of(self)

    def is_baseline(self, cell: Cell) -> bool:
        """Whether the others are compared with this cell."""
        return dict(cell.levels) == self.matrix.baseline

    def workload_with(self, *levels: Level) -> Workload:
        """Return the workload with what levels override.

        Raises:
            ValueError: a level overrides what the workload does not have, or with what can't be.
        """
        changes = {key: value for level in levels for key, value in level.workload.items()}
        if not changes:
            return self.workload
        names = ", ".join(f"`{level.name}`" for level in levels if level.workload)
        for key in changes:
            if key == "kind" or key not in type(self.workload).model_fields:
                hint = nearest(key, type(self.workload).model_fields)
                raise ValueError(f"level {names} overrides unknown workload key `{key}`{hint}")
        needed = {"argv": self.workload.argv} if self.workload.kind == "command" else {}
        try:
            found = _WORKLOAD.validate_python({"kind": self.workload.kind, **needed, **changes})
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(
                f"level {names} overrides `{first['loc'][-1]}`: {first['msg']}"
            ) from error
        # not all of it is validated again: durations are seconds by now, and texts in a file
        return self.workload.model_copy(update={key: getattr(found, key) for key in changes})

    def _check_names(self) -> None:
        names = [factor.name for factor in self.factor]
        if len(set(names)) != len(names):
            raise ValueError("factor names must differ")
        rules: list[Rule] = [
            dict(self.matrix.baseline),
            *self.matrix.exclude,
            *(dict(rule) for rule in self.matrix.include),
        ]
        for rule in rules:
            for factor, named in rule.items():
                if not named:
                    raise ValueError(f"a rule names no level of factor `{factor}`")
                for level in levels_of(named):
                    self._check_level(factor, level)
        if set(self.matrix.baseline) != set(names):
            missing = [name for name in names if name not in self.matrix.baseline]
            raise ValueError(
                f"`baseline` names one level of every factor; it lacks {', '.join(missing)}"
            )
        self._check_interactions()
        check_generators(self.generators, {f.name: len(f.level) for f in self.factor})

    def _check_interactions(self) -> None:
        pairs = [set(pair) for pair in self.matrix.interactions]
        for pair in self.matrix.interactions:
            for name in pair:
                self._levels_of(name)
            if pair[0] == pair[1]:
                raise ValueError(f"`{pair[0]}` can't interact with itself")
            if pairs.count(set(pair)) > 1:
                raise ValueError(f"the interaction of `{pair[0]}` and `{pair[1]}` is named twice")

    def _check_trials(self) -> None:
        if self.trials.stop != "fixed" or self.trials.order != "interleaved":
            raise ValueError(
                "`order` and `stop` under [trials] are for two arms; a matrix has `order` under "
                "[matrix] and makes all its runs"
            )
        if self.matrix.order == "fewest_restarts" and self.trials.boot_per_run:
            raise ValueError(
                'order = "fewest_restarts" saves nothing while every run restarts the service: '
                "set boot_per_run = false under [trials]"
            )

    def _check_observers(self) -> None:
        """Refuse an observer that is on and no factor: its influence could not be told."""
        for factor in self.factor:
            flags = {name for level in factor.level for name in level.env}
            sources = {patch.source for level in factor.level for patch in level.patch}
            for observer in self.observer:
                if observer.name in flags | sources and not factor.observer:
                    raise ValueError(
                        f"factor `{factor.name}` switches the observer {observer.name}: "
                        "write observer = true under it"
                    )
        for observer in self.observer:
            value = self.env.get(observer.flag or "", observer.off)
            if value != observer.off or observer.patch in {patch.source for patch in self.patch}:
                raise ValueError(
                    f"the observer {observer.name} is on in every cell: make it a factor, so that "
                    "what it does can be told"
                )

    def _check_number(self) -> None:
        """Refuse a number of cells that nobody meant; nothing is expanded for it."""
        if self.product_size > MOST_CELLS:
            sizes = " x ".join(f"{len(factor.level)} {factor.name}" for factor in self.factor)
            raise ValueError(
                f"the matrix has {self.product_size:,} cells ({sizes}), and at most "
                f'{MOST_CELLS:,} are made: drop factors or levels, or write fraction = "half" or '
                "`generators` under [matrix]"
            )

    def _check_rules(self) -> None:
        rules = self.matrix
        if is_excluded(tuple(rules.baseline.items()), rules.exclude):
            raise ValueError("the baseline cell is excluded")
        included = [with_baseline(self.factor, rules.baseline, rule) for rule in rules.include]
        for levels in included:
            if is_excluded(levels, rules.exclude):
                raise ValueError(f"`{spelled(levels)}` is included and excluded")
        found = combinations(self.factor, rules.baseline, self.generators)
        kept = {levels for levels in found if not is_excluded(levels, rules.exclude)}
        self._check_every_level_is_there(kept | set(included))
        runs = len(kept | set(included)) * self.trials.runs
        if runs > MOST_RUNS:
            raise ValueError(
                f"the matrix has {runs:,} runs, and at most {MOST_RUNS:,} are made: lower `runs` "
                "under [trials], or the number of cells"
            )

    def _check_every_level_is_there(self, cells: set[Levels]) -> None:
        there = {pair for levels in cells for pair in levels}
        for factor in self.factor:
            for level in factor.level:
                if (factor.name, level.name) not in there:
                    raise ValueError(
                        f"level `{level.name}` of factor `{factor.name}` is empty: `exclude` "
                        "leaves it in no cell"
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
