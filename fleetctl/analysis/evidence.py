"""The numbers a verdict is read from: comparison, elimination, outlook, and the look's level."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from scipy import special

from fleetctl.analysis.counts import ArmCounts, DrawnBlock
from fleetctl.analysis.design import Design
from fleetctl.analysis.guards import GuardFacts
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import (
    ArmEstimate,
    Comparison,
    Elimination,
    MainTest,
    Numbers,
    Outlook,
)
from fleetctl.analysis.power import Assumed, runs_needed, smallest_visible
from fleetctl.analysis.qbf import (
    Pooled,
    correlation,
    difference_interval,
    pooled_dispersion,
    qbf_test,
    rate_interval,
    rate_lower_bound,
    rate_upper_bound,
)
from fleetctl.analysis.rates import clean_sessions_needed, clopper_pearson, log_p_zero
from fleetctl.analysis.sequential import Block, evalue_permuted_blocks, obf_looks
from fleetctl.analysis.two_arms import p_rate_below

CLAIM_ALPHA = 0.05
# an early look of many spends next to nothing, and a quantile has to stay a number
MOST_CONFIDENCE = 0.9999
# More sessions per run would only slow the enumeration; fewer make the outlook more careful.
MOST_SESSIONS_PER_RUN = 1000


@dataclass(frozen=True)
class Arms:
    """Both arms with the dispersion that is assumed for them.

    Attributes:
        control: its runs.
        treatment: its runs.
        history: stored dispersion.
        pooled: what the main test assumes.
        rho_of_events: correlation inside runs, by history and by the arms in which something was
            bad; the bound after clean runs uses it, because a clean arm shows no dispersion. 1
            where the only arm with bad sessions is a single boot, which tells none either: then
            each clean boot is worth one session.
    """

    control: ArmCounts
    treatment: ArmCounts
    history: Dispersion | None
    pooled: Pooled
    rho_of_events: float

    @property
    def clusters(self) -> int:
        """Boots (or runs) of the smaller arm: what power depends on."""
        return min(len(self.control.clusters), len(self.treatment.clusters))

    def runs(self, *, historical_control: bool) -> int:
        """Runs of the smaller arm: what looks are declared in; a historical control has none."""
        arms = [self.treatment] if historical_control else [self.control, self.treatment]
        return min(sum(run.sessions > 0 for run in arm.runs) for arm in arms)


def arms_of(control: ArmCounts, treatment: ArmCounts, history: Dispersion | None) -> Arms:
    """Return both arms with their pooled dispersion."""
    both = (control, treatment)
    eventful = [arm.clusters for arm in both if 0 < arm.bad < arm.sessions]
    measured = eventful or [arm.clusters for arm in both]
    sizes = [cluster.sessions for clusters in measured for cluster in clusters]
    pooled = pooled_dispersion([arm.clusters for arm in both], history)
    rho = correlation(pooled_dispersion(eventful, history).phi, sizes)
    is_told = history is not None and history.df > 0
    is_told = is_told or any(arm.bad and len(arm.clusters) > 1 for arm in both)
    is_guess = bool(pooled.df) and control.bad > 0 and not is_told
    return Arms(control, treatment, history, pooled, 1.0 if is_guess else rho)


def arm_estimate(counts: ArmCounts, arms: Arms) -> ArmEstimate:
    """Return one arm's rate with its intervals; vacuous ones without sessions."""
    return ArmEstimate(
        counts=counts,
        exact=clopper_pearson(counts.bad, counts.sessions),
        adjusted=rate_interval(counts, arms.pooled, arms.rho_of_events) if arms.pooled.df else None,
        lower95=rate_lower_bound(counts, arms.pooled),
        upper95=rate_upper_bound(counts, arms.pooled, arms.rho_of_events),
    )


def numbers_of(
    arms: Arms, treatment: ArmEstimate, design: Design, guards: GuardFacts
) -> Numbers | None:
    """Return all numbers a verdict is read from; None when an arm is empty."""
    control, treated = arms.control.rate, arms.treatment.rate
    if control is None or treated is None:
        return None
    rates = (control, treated)
    runs = arms.runs(historical_control=guards.historical_control)
    margin = design.margin or control / 2 or design.target
    return Numbers(
        comparison=_compare(arms, rates, _look(runs, design, guards.given_up_runs)),
        elimination=_elimination(arms, treatment, design.target),
        outlook=_outlook(arms, rates, design, margin, runs),
        margin=margin,
        evalue=_evalue(arms),
    )


class _Look(NamedTuple):
    """What a look allows.

    Attributes:
        level: of the main test; None when the look was not declared.
        conf: of the interval that "no effect" is read from.
    """

    level: float | None
    conf: float


def _look(runs: int, design: Design, given_up: int) -> _Look:
    """Return the levels of a look: each of the two errors is spent over the looks by itself."""
    both_sides = replace(design, alpha=2 * CLAIM_ALPHA)
    level = level_of_look(runs, both_sides, given_up)
    conf = 1 - (both_sides.alpha if level is None else level)
    return _Look(level_of_look(runs, design, given_up), min(conf, MOST_CONFIDENCE))


def _compare(arms: Arms, rates: tuple[float, float], look: _Look) -> Comparison:
    control, treatment = arms.control, arms.treatment
    counts = (control.bad, control.sessions, treatment.bad, treatment.sessions)
    return Comparison(
        difference=rates[1] - rates[0],
        phi=arms.pooled.phi,
        df=arms.pooled.df,
        test=_main_test(arms, look.conf),
        level=look.level,
        p_lower=p_rate_below(*counts),
        p_halved=p_rate_below(*counts, ratio=0.5),
    )


def _main_test(arms: Arms, conf: float) -> MainTest | None:
    control, treatment = arms.control, arms.treatment
    test = qbf_test(control, treatment, arms.history)
    if test.t is None or test.p is None:
        return None
    return MainTest(
        t=test.t,
        p=test.p,
        ci95=difference_interval(control, treatment, arms.pooled, 0.95),
        ci90=difference_interval(control, treatment, arms.pooled, 0.90),
        equivalence=difference_interval(control, treatment, arms.pooled, conf),
        equivalence_conf=conf,
    )


def level_of_look(runs: int, design: Design, given_up: int = 0) -> float | None:
    """Return the level of a look after `runs` runs per arm; None when it was not declared.

    Without declared looks or planned runs the data at hand are the whole design.
    """
    looks = design.declared_looks
    if not looks:
        return design.alpha
    end = looks[-1]
    if runs < end <= runs + given_up:
        runs = end
    if runs not in looks:
        return None
    fractions = [look / end for look in looks]
    return obf_looks(fractions, design.alpha)[looks.index(runs)].nominal_p


def _evalue(arms: Arms) -> float | None:
    """Return the e-value of all finished random blocks; None without any."""
    drawn: dict[DrawnBlock, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, counts in enumerate((arms.control, arms.treatment)):
        for run in counts.runs:
            if run.block is not None and run.sessions:
                drawn[run.block][side].append(run.bad)
    blocks = [
        Block(tuple(control), tuple(treatment))
        for block, (control, treatment) in drawn.items()
        if len(control) + len(treatment) == block.runs
    ]
    return evalue_permuted_blocks(blocks) if blocks else None


def _elimination(arms: Arms, treatment: ArmEstimate, target: float) -> Elimination:
    counts = treatment.counts
    if treatment.lower95 > target and arms.pooled.df:
        return Elimination(target, refuted=True)
    needed = clean_sessions_needed(target, CLAIM_ALPHA, counts.bad)
    sizes = [cluster.sessions for cluster in counts.clusters]
    # a single boot may be lucky as a whole, however many sessions it served
    runs_left = max(2 - len(sizes), _clean_runs_left(sizes, arms.rho_of_events, target))
    return Elimination(
        target,
        refuted=False,
        clean_sessions_left=max(0, needed - counts.sessions),
        clean_runs_left=None if counts.bad else runs_left,
    )


def _clean_runs_left(sizes: Sequence[int], rho: float, target: float) -> int:
    """Return the further clean runs of the usual size that bring the bound to the target."""
    missing = math.log(CLAIM_ALPHA) - sum(log_p_zero(target, rho, size) for size in sizes)
    usual = round(sum(sizes) / len(sizes))
    return max(0, math.ceil(missing / log_p_zero(target, rho, usual) - 1e-12))


def _outlook(
    arms: Arms, rates: tuple[float, float], design: Design, margin: float, runs: int
) -> Outlook:
    both = (arms.control, arms.treatment)
    sizes = [cluster.sessions for arm in both for cluster in arm.clusters]
    assumed = Assumed(
        sessions=min(max(1, round(sum(sizes) / len(sizes))), MOST_SESSIONS_PER_RUN),
        rho=correlation(arms.pooled.phi, sizes),
        alpha=design.alpha,
        history=arms.history,
    )
    needed = runs_needed(*rates, assumed)
    return Outlook(
        runs=arms.clusters,
        runs_needed=needed,
        more_runs=None if needed is None else max(1, needed - arms.clusters),
        equivalence_runs=equivalence_runs(rates[0], margin, assumed),
        smallest_visible=smallest_visible(rates[0], arms.clusters, assumed),
        next_look=min((n for n in design.declared_looks if n > runs), default=None),
    )


def equivalence_runs(rate: float, margin: float, assumed: Assumed) -> int:
    """Return the runs per arm that show "no effect" within +-margin with 90 % power."""
    z = float(special.ndtri(0.95) + special.ndtri(0.90))
    sessions = z * z * 2 * rate * (1 - rate) / margin**2
    return max(2, math.ceil(sessions * assumed.design_effect / assumed.sessions))
