"""From counts and guards to a verdict: the rules, tried from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.analysis.checks import NOTABLE_P, count_checks
from fleetctl.analysis.counts import ArmCounts
from fleetctl.analysis.design import Design
from fleetctl.analysis.evidence import (
    arm_estimate,
    arms_of,
    compare,
    elimination_of,
    evalue_of,
    level_of_look,
    outlook_of,
)
from fleetctl.analysis.guards import Check, GuardFacts, fact_checks
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import ArmEstimate, Comparison, Elimination, Flag, Judgement, Word

DEFAULT_DESIGN = Design()
NO_FACTS = GuardFacts()


def judge(
    control: ArmCounts,
    treatment: ArmCounts,
    *,
    design: Design = DEFAULT_DESIGN,
    guards: GuardFacts = NO_FACTS,
    history: Dispersion | None = None,
) -> Judgement:
    """Return the verdict on treatment against control.

    The main test is run-level quasi-binomial with floored dispersion; `history` lends it the
    dispersion of matching A/A runs. A look that was not declared is decided by the
    permuted-block e-value alone.
    """
    arms = arms_of(control, treatment, history)
    checks = fact_checks(control, treatment, guards, factorial=design.factorial)
    checks += count_checks(control, treatment, guards, arms.pooled, design.target)
    own = arm_estimate(treatment, arms)
    level = level_of_look(arms.runs, design, guards.given_up_runs)
    margin = _margin(control, design)
    evidence = _Evidence(
        treatment=own,
        comparison=compare(arms, level),
        elimination=elimination_of(arms, own, design.target),
        evalue=evalue_of(arms),
        margin=margin,
        target=design.target,
        alpha=design.alpha,
    )
    word, reason = _word(evidence, checks)
    return Judgement(
        word=word,
        reason=reason,
        flags=_flags(evidence, checks, word, design, guards, history),
        control=arm_estimate(control, arms),
        treatment=own,
        comparison=evidence.comparison,
        elimination=evidence.elimination,
        outlook=None if margin is None else outlook_of(arms, design, margin),
        margin=margin,
        evalue=evidence.evalue,
        checks=tuple(checks),
        design=design,
        history=history,
        observers=guards.observers,
    )


def _margin(control: ArmCounts, design: Design) -> float | None:
    """Return the difference that would not matter; None when the control shows nothing."""
    if design.margin is not None:
        return design.margin
    return control.rate / 2 if control.rate else None


@dataclass(frozen=True)
class _Evidence:
    """What the rules look at."""

    treatment: ArmEstimate
    comparison: Comparison | None
    elimination: Elimination | None
    evalue: float | None
    margin: float | None
    target: float
    alpha: float


def _word(evidence: _Evidence, checks: Sequence[Check]) -> tuple[Word, str]:
    """Return the verdict and its reason by the first rule that applies."""
    for check in checks:
        if check.is_void:
            return Word.INVALID, check.name
    comparison = evidence.comparison
    if comparison is None or comparison.p is None:
        return Word.INCONCLUSIVE, "no_replication"
    if _is_significant(evidence, comparison):
        return _direction(evidence, comparison)
    if comparison.level is None:
        return Word.INCONCLUSIVE, "undeclared_look"
    if evidence.margin is not None and comparison.ci90.within(evidence.margin):
        return Word.NO_EFFECT, "within_margin"
    return Word.INCONCLUSIVE, "not_significant"


def _is_significant(evidence: _Evidence, comparison: Comparison) -> bool:
    """Whether the arms differ, by the test that this look allows."""
    if comparison.p is None:
        return False
    if comparison.level is None:
        return evidence.evalue is not None and evidence.evalue >= 1 / evidence.alpha
    return comparison.p < comparison.level and comparison.ci95.excludes_zero()


def _direction(evidence: _Evidence, comparison: Comparison) -> tuple[Word, str]:
    if comparison.difference > 0:
        return Word.WORSE, "higher"
    own = evidence.treatment
    # One boot may be lucky as a whole, however many sessions it served.
    replicated = len(own.counts.clusters) > 1
    if own.counts.bad == 0 and replicated and own.upper95 <= evidence.target:
        return Word.ELIMINATED, "bound_holds"
    return Word.REDUCED, "lower"


def _flags(
    evidence: _Evidence,
    checks: Sequence[Check],
    word: Word,
    design: Design,
    guards: GuardFacts,
    history: Dispersion | None,
) -> tuple[Flag, ...]:
    """Return what must be said beside the verdict, in the order of `Flag`."""
    failed = {check.name for check in checks if check.passed is False}
    notable = {
        check.name for check in checks if check.value is not None and check.value < NOTABLE_P
    }
    moved = word in (Word.ELIMINATED, Word.REDUCED, Word.WORSE)
    comparison, elimination = evidence.comparison, evidence.elimination
    raised = {
        Flag.ELIMINATION_REFUTED: word is not Word.INVALID
        and elimination is not None
        and elimination.refuted,
        Flag.PEEKED: comparison is not None and comparison.level is None,
        Flag.PERTURBING_OBSERVER: "perturbing_observer" in failed
        or (moved and guards.sole_observer is not None),
        Flag.OBSERVER_ON: bool(guards.observers),
        Flag.CONFOUNDED: "confounded" in failed,
        Flag.NOT_EXERCISED: "not_exercised" in failed,
        Flag.DRIFT: bool(notable & {"drift", "bracket"}),
        Flag.HETEROGENEOUS: "hosts_disagree" in notable
        or any(name.startswith("heterogeneous") for name in failed),
        Flag.HISTORICAL_CONTROL: guards.historical_control,
        Flag.BLOCKED_ORDER: "blocked_order" in failed,
        Flag.HISTORY_USED: history is not None and history.df > 0,
        Flag.POST_HOC: design.post_hoc,
    }
    return tuple(flag for flag in Flag if raised[flag])
