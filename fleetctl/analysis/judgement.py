"""What a verdict is made of, as data. Imports nothing heavy."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fleetctl.analysis.counts import ArmCounts, Interval
from fleetctl.analysis.design import Design
from fleetctl.analysis.guards import Check
from fleetctl.analysis.history import Dispersion


class Word(enum.StrEnum):
    """The verdict; its rules are tried from top to bottom (`verdict`)."""

    INVALID = "invalid"
    ELIMINATED = "eliminated"
    REDUCED = "reduced"
    WORSE = "worse"
    NO_EFFECT = "no_effect"
    INCONCLUSIVE = "inconclusive"

    @property
    def is_decided(self) -> bool:
        """Whether the question was answered."""
        return self not in (Word.INVALID, Word.INCONCLUSIVE)


class Flag(enum.StrEnum):
    """What a reader must know beside the verdict."""

    ELIMINATION_REFUTED = "elimination_refuted"
    PEEKED = "peeked"
    PERTURBING_OBSERVER = "perturbing_observer"
    OBSERVER_ON = "observer_on"
    CONFOUNDED = "confounded"
    NOT_EXERCISED = "not_exercised"
    EXPOSURE_DIFFERS = "exposure_differs"
    FOREIGN_LOAD = "foreign_load"
    OTHER_FAILURES = "other_failures"
    DRIFT = "drift"
    HETEROGENEOUS = "heterogeneous"
    HISTORICAL_CONTROL = "historical_control"
    BLOCKED_ORDER = "blocked_order"
    HISTORY_USED = "history_used"
    POST_HOC = "post_hoc"


@dataclass(frozen=True)
class ArmEstimate:
    """One arm's rate.

    Attributes:
        counts: the runs behind it.
        exact: Clopper-Pearson 95 % interval if sessions were independent.
        adjusted: the same on effective counts, for the dispersion of the comparison; beta-binomial
            when nothing was bad, as `upper95`. None where the spread between runs is unknown.
        lower95: one-sided lower bound on effective counts; sessions as independent where the
            spread is unknown.
        upper95: one-sided upper bound, likewise; beta-binomial when nothing was bad.
    """

    counts: ArmCounts
    exact: Interval
    adjusted: Interval | None
    lower95: float
    upper95: float

    @property
    def rate(self) -> float | None:
        """Share of bad sessions; None without sessions."""
        return self.counts.rate


@dataclass(frozen=True)
class MainTest:
    """The run-level test.

    Attributes:
        t: statistic.
        p: two-sided.
        ci95: interval of the difference on effective counts.
        ci90: the narrower one.
        equivalence: the one that "no effect" is read from at this look.
        equivalence_conf: its confidence; 0.9 where the data are looked at once.
    """

    t: float
    p: float
    ci95: Interval
    ci90: Interval
    equivalence: Interval
    equivalence_conf: float


@dataclass(frozen=True)
class Comparison:
    """Treatment against control at run level.

    Attributes:
        difference: treatment minus control.
        phi: assumed dispersion, at least 1.
        df: degrees of freedom behind it.
        test: None when df is 0: nothing was replicated and there is no history.
        level: what p must fall below at this look; None when the look was not declared.
        p_lower: posterior probability that the treatment's rate is lower, sessions independent.
        p_halved: the same for at most half the control's rate.
    """

    difference: float
    phi: float
    df: int
    test: MainTest | None
    level: float | None
    p_lower: float
    p_halved: float

    @property
    def ci95(self) -> Interval | None:
        """The 95 % interval of the difference; None without a test."""
        return self.test.ci95 if self.test else None

    @property
    def ci90(self) -> Interval | None:
        """The 90 % interval of the difference; None without a test."""
        return self.test.ci90 if self.test else None


@dataclass(frozen=True)
class Elimination:
    """How far the treatment is from "eliminated".

    Attributes:
        target: rate that counts as eliminated.
        refuted: its lower bound is above the target.
        clean_sessions_left: further clean sessions that bring the upper bound to the target, if
            sessions were independent; None when refuted.
        clean_runs_left: further clean runs of the usual size under the dispersion seen; None when
            refuted or when there were bad sessions.
    """

    target: float
    refuted: bool
    clean_sessions_left: int | None = None
    clean_runs_left: int | None = None


@dataclass(frozen=True)
class Outlook:
    """What more runs could do.

    Attributes:
        runs: runs per arm so far (of the smaller arm; boots where runs share them).
        runs_needed: runs per arm that see a difference like this one with 80 % power; None when
            there is no difference or more than 100 are needed.
        more_runs: how many of them are to come, per arm; None like the above.
        equivalence_runs: runs per arm that could show "no effect" within the margin.
        smallest_visible: highest treatment rate that the runs so far see with 80 % power.
        next_look: runs per arm of the next declared look; None when there is none.
    """

    runs: int
    runs_needed: int | None
    more_runs: int | None
    equivalence_runs: int
    smallest_visible: float | None
    next_look: int | None


@dataclass(frozen=True)
class Numbers:
    """What was read from two arms that both have sessions.

    Attributes:
        comparison: treatment against control.
        elimination: how far the treatment is from "eliminated".
        outlook: what more runs could do.
        margin: difference that would not matter.
        evalue: permuted-block e-value; None where no arm was drawn at random inside a block.
    """

    comparison: Comparison
    elimination: Elimination
    outlook: Outlook
    margin: float
    evalue: float | None


@dataclass(frozen=True)
class Judgement:
    """The verdict with everything it was read from.

    Attributes:
        word: the verdict.
        reason: one word for programs: the failed guard, or the rule that decided.
        flags: what must be said beside it.
        control: the control's rate.
        treatment: the treatment's rate.
        numbers: None when an arm is empty, which is always invalid.
        checks: all guards with their numbers.
        design: what was declared.
        history: the stored dispersion that was used.
        observers: observers that were on.
    """

    word: Word
    reason: str
    flags: tuple[Flag, ...]
    control: ArmEstimate
    treatment: ArmEstimate
    numbers: Numbers | None
    checks: tuple[Check, ...]
    design: Design
    history: Dispersion | None
    observers: tuple[str, ...] = ()

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The guards that forbid a conclusion."""
        return tuple(check for check in self.checks if check.is_void)
