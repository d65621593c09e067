"""A search among changes: which of an ordered list moved the rate, or which few are needed."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from fleetctl.spec.experiment import (
    Head,
    Jit,
    Name,
    Patch,
    ToolcallSpec,
    Trials,
    VerdictSpec,
    Workload,
    checked_workload,
)
from fleetctl.spec.flags import Flags, checked_flags
from fleetctl.spec.limits import MOST_SEED
from fleetctl.spec.metric import Metric
from fleetctl.spec.quantities import Lease, Share
from fleetctl.spec.ready import Ready
from fleetctl.spec.value import Value

LONGEST_SERIES = 1000
LARGEST_SET = 64
_LARGEST_SMALLEST_EFFECT = 0.9


class Change(Value):
    """One change of a series.

    Attributes:
        name: as log and report show it.
        patch: patches it brings; diffs may rest on those of earlier changes.
        env: flags it sets or unsets.
    """

    name: Name
    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)

    _flags = field_validator("env")(checked_flags)

    @model_validator(mode="after")
    def _changes_something(self) -> Change:
        if not self.patch and not self.env:
            raise ValueError(f"change `{self.name}` has neither `patch` nor `env`")
        return self


def checked_names(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Return the changes, or raise ValueError when two have the same name."""
    names = [change.name for change in changes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two changes are called `{twice}`")
    return changes


class Base(Value):
    """What stands on the host in every build, below the changes; by default the host as found.

    Attributes:
        patch: patches of every build.
        env: flags of every build.
    """

    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)

    _flags = field_validator("env")(checked_flags)


class Commits(Value):
    """Commits of a git tree on the host, deployed file by file; nothing is checked out.

    Attributes:
        good: a commit without the fault; everything git resolves.
        bad: a commit with it, on whose first-parent line `good` lies.
        path: the git tree, relative to the host's `tree`.
        package: a Python package in it whose modules are then proven in the service's own
            interpreter.
    """

    good: str = Field(min_length=1)
    bad: str = Field(min_length=1)
    path: str = "."
    package: str | None = None

    @field_validator("good", "bad")
    @classmethod
    def _no_option(cls, name: str) -> str:
        if name.startswith("-") or ".." in name or any(c.isspace() or c == "\0" for c in name):
            raise ValueError(f"`{name}` is not the name of one commit")
        return name

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError("`path` is relative to the host's `tree` and stays inside it")
        return path


class SearchTrials(Value):
    """How the runs of a search are made.

    Attributes:
        seed: of the workload and of the confirmation's order; recorded with the run.
        boot_per_run: restart the service before every trial, also when nothing differs.
    """

    seed: int = Field(default=0, ge=0, le=MOST_SEED)
    boot_per_run: bool = True

    def trials(self, runs: int) -> Trials:
        """Return them as those of an experiment with `runs` runs per arm."""
        return Trials(runs=runs, seed=self.seed, boot_per_run=self.boot_per_run)


class BisectSpec(Value):
    """When a bisection may stop, and what is known beforehand.

    Attributes:
        confidence: probability at which a change is the suspect.
        max_runs: of the search; the confirmation's come on top.
        confirm_runs: runs of each of the two builds that the suspect separates, for the verdict;
            0 leaves the confirmation out.
        smallest_effect: a smaller difference counts as no change.
        good_rate: rate before the culprit, where it was measured before; worth 100 sessions.
        bad_rate: rate from the culprit on, likewise.
    """

    confidence: Share = 0.95
    max_runs: int = Field(default=60, ge=4, le=10_000)
    confirm_runs: int = Field(default=4, ge=0, le=100)
    smallest_effect: Share = 0.05
    good_rate: Share | None = None
    bad_rate: Share | None = None

    @model_validator(mode="after")
    def _can_be(self) -> BisectSpec:
        if not 0.5 < self.confidence < 1:
            raise ValueError("`confidence` lies between 50% and 100%, both excluded")
        _check_apart(self.good_rate, self.bad_rate, self.smallest_effect)
        return self


class MinimizeSpec(Value):
    """How sure a minimisation has to be, and how long it may take.

    Attributes:
        error: probability that any test of the whole minimisation errs; spread over `tests`.
        tests: how many sets of changes may be tested.
        runs_per_test: after which a test is given up as unresolved.
        end_runs: at least, of the host with all changes and with none.
        max_runs: of everything together.
        smallest_effect: a smaller difference counts as no effect.
        good_rate: the lower of both ends' rates, where it was measured before.
        bad_rate: the higher one, likewise.
        metric: what counts as bad, `corruption` or `failures`, as under [verdict] of an experiment.
    """

    error: Share = 0.05
    tests: int = Field(default=60, ge=1, le=10_000)
    runs_per_test: int = Field(default=12, ge=1, le=1000)
    end_runs: int = Field(default=4, ge=2, le=100)
    max_runs: int = Field(default=400, ge=4, le=100_000)
    smallest_effect: Share = 0.05
    good_rate: Share | None = None
    bad_rate: Share | None = None
    metric: Metric = "corruption"

    @model_validator(mode="after")
    def _can_be(self) -> MinimizeSpec:
        if not 0 < self.error < 0.5:
            raise ValueError("`error` lies between 0 and 50%, both excluded")
        _check_apart(self.good_rate, self.bad_rate, self.smallest_effect)
        return self


def _check_apart(good: float | None, bad: float | None, smallest: float) -> None:
    """Refuse what leaves no two rates that lie `smallest` apart."""
    if smallest > _LARGEST_SMALLEST_EFFECT:
        raise ValueError(
            f"`smallest_effect` is {smallest:g}, and hardly two rates lie that far apart: "
            f"write {_LARGEST_SMALLEST_EFFECT} or less"
        )
    lower, higher = 0.0 if good is None else good, 1.0 if bad is None else bad
    if higher - lower < smallest or (higher == lower and None not in (good, bad)):
        raise ValueError(
            "`bad_rate` (1 where it is left out) must exceed `good_rate` (0 where it is left out) "
            "by `smallest_effect` or more"
        )


class Bisect(Value):
    """Which of an ordered list of changes moved the rate?

    Attributes:
        experiment: name, reason and target; the search runs on the target's first site.
        bisect: when to stop.
        change: the list, in order; or
        commits: the commits of a git tree on the host.
        base: what stands below the list in every build.
        workload: as in an experiment.
        trials: seed and restarts.
        verdict: of the confirmation, as in an experiment.
        ready: as in an experiment.
        lease: as in an experiment.
        jit: as in an experiment.
    """

    experiment: Head
    bisect: BisectSpec = BisectSpec()
    change: tuple[Change, ...] = Field(default=(), max_length=LONGEST_SERIES)
    commits: Commits | None = None
    base: Base = Base()
    workload: Workload = ToolcallSpec(kind="toolcall")
    trials: SearchTrials = SearchTrials()
    verdict: VerdictSpec = VerdictSpec()
    ready: Ready = Ready()
    lease: Lease = 60.0
    jit: Jit = Jit()

    _distinct = field_validator("change")(checked_names)
    _reached = field_validator("workload")(checked_workload)

    @property
    def metric(self) -> Metric:
        """What makes a session bad."""
        return self.verdict.metric

    @model_validator(mode="after")
    def _one_list(self) -> Bisect:
        if bool(self.change) == (self.commits is not None):
            raise ValueError("a bisection needs either `[[change]]` tables or `[commits]`")
        if self.commits is not None and self.base.patch:
            raise ValueError("`base` of a bisection over commits holds flags only")
        return self


class Minimize(Value):
    """Which few of several changes keep the effect?

    Attributes:
        experiment: name, reason and target; the search runs on the target's first site.
        minimize: error and budget.
        change: two or more, applied in this order.
        base: what stands below them in every build.
        workload: as in an experiment.
        trials: seed and restarts.
        ready: as in an experiment.
        lease: as in an experiment.
        jit: as in an experiment.
    """

    experiment: Head
    minimize: MinimizeSpec = MinimizeSpec()
    change: tuple[Change, ...] = Field(min_length=2, max_length=LARGEST_SET)
    base: Base = Base()
    workload: Workload = ToolcallSpec(kind="toolcall")
    trials: SearchTrials = SearchTrials()
    ready: Ready = Ready()
    lease: Lease = 60.0
    jit: Jit = Jit()

    _distinct = field_validator("change")(checked_names)
    _reached = field_validator("workload")(checked_workload)

    @property
    def metric(self) -> Metric:
        """What makes a session bad."""
        return self.minimize.metric
