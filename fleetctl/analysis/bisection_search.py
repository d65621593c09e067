"""What a bisection does next: measure a point, confirm a suspect, or end; a fold over its runs."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetctl.analysis.bisection import Belief, Seen, Worlds, believe, expected_bits
from fleetctl.analysis.counts import ArmCounts, Interval, Run
from fleetctl.analysis.design import Order, schedule
from fleetctl.analysis.rates import clopper_pearson

# what is said about both ends being alike, or reversed, rests on this many runs of each
END_RUNS = 3


@dataclass(frozen=True)
class SearchRun:
    """One measured run.

    Attributes:
        point: how many of the changes the build had.
        run: what was counted.
        confirms: whose confirmation this run belongs to: the point of its worse build, which is
            the suspect, or 0 where the first build is held to be worse than the last. None in the
            search itself.
    """

    point: int
    run: Run
    confirms: int | None = None


@dataclass(frozen=True)
class BisectDesign:
    """What was declared before the first run.

    Attributes:
        changes: number of ordered changes.
        sessions: of one run.
        confidence: probability at which a change is the suspect.
        max_runs: of the search; the confirmation's come on top.
        confirm_runs: of each of the two builds that a confirmation compares.
        seed: of the confirmation's order.
        worlds: what is believed before the first run.
    """

    changes: int
    sessions: int
    confidence: float = 0.95
    max_runs: int = 60
    confirm_runs: int = 4
    seed: int = 0
    worlds: Worlds = field(default_factory=Worlds)


class Ending(enum.StrEnum):
    """How a bisection ends."""

    FOUND = "found"
    NO_CHANGE = "no_change"
    REVERSED = "reversed"
    OUT_OF_RUNS = "out_of_runs"


@dataclass(frozen=True)
class Next:
    """The next run to make.

    Attributes:
        confirms: as in `SearchRun`.
        bits: what it is expected to tell; None where it is not chosen for that.
    """

    point: int
    confirms: int | None = None
    bits: float | None = None


@dataclass(frozen=True)
class End:
    """The search is over.

    Attributes:
        culprit: the change found, from 1; None unless it was found.
    """

    ending: Ending
    culprit: int | None = None


def belief_of(design: BisectDesign, runs: Sequence[SearchRun]) -> Belief:
    """Return what all runs say, those of confirmations included: each is counted once."""
    return believe(design.changes, _seen(runs), design.worlds)


def next_step(design: BisectDesign, runs: Sequence[SearchRun]) -> Next | End:
    """Return what to do after these runs; the same runs always lead to the same step.

    Both ends come first. A confirmation that has begun is finished, whatever its first runs say:
    its size was declared, so its verdict may be read by the ordinary test.
    """
    begun = _unfinished_confirmation(design, runs)
    if begun is not None:
        return _confirm(design, runs, begun)
    for end in (design.changes, 0):
        if not any(run.point == end for run in runs):
            return Next(end)
    return _search(design, runs)


def _search(design: BisectDesign, runs: Sequence[SearchRun]) -> Next | End:
    belief = belief_of(design, runs)
    if belief.best_mass >= design.confidence:
        if _confirmed_so_far(runs, belief.best) >= 2 * design.confirm_runs:
            return End(Ending.FOUND, belief.best)
        return _confirm(design, runs, belief.best)
    end = _rarest_end(design, runs)
    is_other = max(belief.none, belief.reversed_mass) >= design.confidence
    if is_other and _runs_at(runs, end) >= END_RUNS:
        if belief.none >= design.confidence:
            return End(Ending.NO_CHANGE)
        if _confirmed_so_far(runs, 0) >= 2 * design.confirm_runs:
            return End(Ending.REVERSED)
        return _confirm(design, runs, 0)
    if sum(run.confirms is None for run in runs) >= design.max_runs:
        return End(Ending.OUT_OF_RUNS)
    if is_other:
        return Next(end)
    bits = expected_bits(design.changes, _seen(runs), design.worlds, design.sessions)
    point = int(np.argmax(bits))
    return Next(point, bits=float(bits[point]))


def _seen(runs: Sequence[SearchRun]) -> list[Seen]:
    """Return what was seen, boot by boot: runs that share one share its luck."""
    points = sorted({run.point for run in runs})
    own = {point: tuple(run.run for run in runs if run.point == point) for point in points}
    return [
        Seen(point, cluster.bad, cluster.sessions)
        for point in points
        for cluster in ArmCounts("", own[point]).clusters
    ]


def _runs_at(runs: Sequence[SearchRun], point: int) -> int:
    return sum(run.point == point for run in runs)


def _rarest_end(design: BisectDesign, runs: Sequence[SearchRun]) -> int:
    return min((design.changes, 0), key=lambda end: _runs_at(runs, end))


def _confirmed_so_far(runs: Sequence[SearchRun], worse: int) -> int:
    return sum(run.confirms == worse for run in runs)


def _unfinished_confirmation(design: BisectDesign, runs: Sequence[SearchRun]) -> int | None:
    last = runs[-1].confirms if runs else None
    if last is None or _confirmed_so_far(runs, last) >= 2 * design.confirm_runs:
        return None
    return last


def _confirm(design: BisectDesign, runs: Sequence[SearchRun], worse: int) -> Next | End:
    """Return the next run of a confirmation: the worse build is the control.

    A control shows the fault; the treatment, the build without the suspect, mends it. Where the
    list is held to lower the rate, the first build is the worse one and the last mends it: boots
    that draw lots look like this, too, and only runs that were not chosen for it can tell.
    """
    if not design.confirm_runs:
        return End(Ending.FOUND, worse) if worse else End(Ending.REVERSED)
    slots = schedule(design.confirm_runs, Order.INTERLEAVED, design.seed, host=f"change {worse}")
    slot = slots[_confirmed_so_far(runs, worse)]
    better = worse - 1 if worse else design.changes
    return Next(worse if slot.arm == "control" else better, confirms=worse)


@dataclass(frozen=True)
class PointRate:
    """What was counted at one point.

    Attributes:
        interval: Clopper-Pearson 95 % if sessions were independent.
    """

    point: int
    runs: int
    bad: int
    sessions: int
    interval: Interval


def rates_by_point(runs: Sequence[SearchRun]) -> tuple[PointRate, ...]:
    """Return the counts of every point that was measured, in order."""
    found = []
    for point in sorted({run.point for run in runs}):
        own = [run.run for run in runs if run.point == point]
        bad, sessions = sum(r.bad for r in own), sum(r.sessions for r in own)
        found.append(PointRate(point, len(own), bad, sessions, clopper_pearson(bad, sessions)))
    return tuple(found)
