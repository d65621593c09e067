"""From counts and guards to a verdict: the rules, tried from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.analysis.checks import NOTABLE_P, count_checks
from fleetctl.analysis.counts import ArmCounts
from fleetctl.analysis.design import Design
from fleetctl.analysis.evidence import arm_estimate, arms_of, numbers_of
from fleetctl.analysis.guards import Check, GuardFacts, fact_checks
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import ArmEstimate, Flag, Judgement, MainTest, Numbers, Word

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
    checks += count_checks(control, treatment, guards, arms.pooled, design)
    own = arm_estimate(treatment, arms)
    numbers = numbers_of(arms, own, design, guards)
    word, reason = _word(numbers, own, checks, design)
    return Judgement(
        word=word,
        reason=reason,
        flags=(
            *_flags_of_numbers(numbers, word),
            *_flags_of_guards(guards, checks, word),
            *_flags_of_design(design, history),
        ),
        control=arm_estimate(control, arms),
        treatment=own,
        numbers=numbers,
        checks=tuple(checks),
        design=design,
        history=history,
        observers=guards.observers,
    )


def _word(
    numbers: Numbers | None, treatment: ArmEstimate, checks: Sequence[Check], design: Design
) -> tuple[Word, str]:
    """Return the verdict and its reason by the first rule that applies."""
    void = [check.name for check in checks if check.is_void]
    if numbers is None or void:
        return Word.INVALID, void[0]
    comparison = numbers.comparison
    if comparison.test is None:
        return Word.INCONCLUSIVE, "no_replication"
    if _is_significant(numbers, comparison.test, design.alpha):
        word, reason = _direction(numbers, treatment, design.target)
        # what was corruption may have changed its face: a broken reply that is none of the signs
        is_moved = word is not Word.WORSE and _has_failed("other_failures", checks)
        return (Word.INCONCLUSIVE, "other_failures") if is_moved else (word, reason)
    if comparison.level is None:
        return Word.INCONCLUSIVE, "undeclared_look"
    if _exposure_differs(checks):
        return Word.INCONCLUSIVE, "exposure_differs"
    if comparison.test.equivalence.within(numbers.margin):
        return Word.NO_EFFECT, "within_margin"
    return Word.INCONCLUSIVE, "not_significant"


def _is_significant(numbers: Numbers, test: MainTest, alpha: float) -> bool:
    """Whether the arms differ, by the test that this look allows."""
    comparison = numbers.comparison
    if comparison.level is None:
        return numbers.evalue is not None and numbers.evalue >= 1 / alpha
    return test.p < comparison.level and test.ci95.excludes_zero()


def _direction(numbers: Numbers, treatment: ArmEstimate, target: float) -> tuple[Word, str]:
    if numbers.comparison.difference > 0:
        return Word.WORSE, "higher"
    # One boot may be lucky as a whole, however many sessions it served.
    replicated = len(treatment.counts.clusters) > 1
    if treatment.counts.bad == 0 and replicated and treatment.upper95 <= target:
        return Word.ELIMINATED, "bound_holds"
    return Word.REDUCED, "lower"


def _has_failed(name: str, checks: Sequence[Check]) -> bool:
    return any(check.passed is False for check in checks if check.name == name)


def _exposure_differs(checks: Sequence[Check]) -> bool:
    return any(c.passed is False for c in checks if c.name.startswith("exposure_"))


def _flags_of_numbers(numbers: Numbers | None, word: Word) -> list[Flag]:
    if numbers is None:
        return []
    raised = {
        Flag.ELIMINATION_REFUTED: word is not Word.INVALID and numbers.elimination.refuted,
        Flag.PEEKED: numbers.comparison.level is None,
    }
    return [flag for flag, is_raised in raised.items() if is_raised]


def _flags_of_guards(guards: GuardFacts, checks: Sequence[Check], word: Word) -> list[Flag]:
    failed = {check.name for check in checks if check.passed is False}
    notable = {
        c.name for c in checks if c.unit == "p" and c.value is not None and c.value < NOTABLE_P
    }
    moved = word in (Word.ELIMINATED, Word.REDUCED, Word.WORSE)
    raised = {
        Flag.PERTURBING_OBSERVER: "perturbing_observer" in failed
        or (moved and guards.sole_observer is not None),
        Flag.OBSERVER_ON: bool(guards.observers),
        Flag.CONFOUNDED: "confounded" in failed,
        Flag.NOT_EXERCISED: "not_exercised" in failed,
        Flag.EXPOSURE_DIFFERS: _exposure_differs(checks),
        Flag.FOREIGN_LOAD: "foreign_load" in failed,
        Flag.OTHER_FAILURES: "other_failures" in failed
        or (word in (Word.ELIMINATED, Word.REDUCED) and _fails_otherwise(guards)),
        Flag.DRIFT: bool(notable & {"drift", "bracket"}),
        Flag.HETEROGENEOUS: bool(
            notable & {"hosts_disagree", "heterogeneous_control", "heterogeneous_treatment"}
        ),
        Flag.HISTORICAL_CONTROL: guards.historical_control,
        Flag.BLOCKED_ORDER: "blocked_order" in failed,
    }
    return [flag for flag, is_raised in raised.items() if is_raised]


def _fails_otherwise(guards: GuardFacts) -> bool:
    found = guards.treatment.other_failures
    return found is not None and found.counts.bad > 0


def _flags_of_design(design: Design, history: Dispersion | None) -> list[Flag]:
    raised = {
        Flag.HISTORY_USED: history is not None and history.df > 0,
        Flag.POST_HOC: design.post_hoc,
    }
    return [flag for flag, is_raised in raised.items() if is_raised]
