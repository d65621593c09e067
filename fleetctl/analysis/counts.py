"""What was counted: runs of an arm, and the plain values made of them. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.errors import InputError


class Interval(NamedTuple):
    """A closed interval of a rate or of a difference of rates."""

    low: float
    high: float

    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of zero."""
        return self.low > 0 or self.high < 0

    def within(self, margin: float) -> bool:
        """Whether all of it lies inside +-`margin`."""
        return -margin < self.low and self.high < margin


class Cluster(NamedTuple):
    """Sessions that share a server boot: the unit of replication."""

    bad: int
    sessions: int


class DrawnBlock(NamedTuple):
    """A block of runs whose arms were drawn at random.

    Attributes:
        name: what sets it apart from the others.
        runs: how many runs were drawn in it, so that an unfinished one is noticed.
    """

    name: str
    runs: int


@dataclass(frozen=True)
class Run:
    """One run of the workload in one arm.

    Attributes:
        bad: sessions that the metric counts: corrupt ones, or all that failed.
        sessions: sessions with an outcome; infra failures are neither bad nor clean, so not here.
        infra: sessions lost to the infrastructure; None where nobody counted them.
        trial: where its transcripts lie, so that every number can be traced.
        boot: server boot the run was served by; runs with the same boot are one cluster.
        position: place in the executed order over both arms, from 0; None where unknown.
        block: the block inside which its arm was drawn at random; None where it was not.
        host: where it ran.
    """

    bad: int
    sessions: int
    infra: int | None = None
    trial: str = ""
    boot: str | None = None
    position: int | None = None
    block: DrawnBlock | None = None
    host: str = ""

    def __post_init__(self) -> None:
        if (self.infra or 0) < 0 or not 0 <= self.bad <= self.sessions:
            raise InputError(
                f"a run can't have {self.bad} bad of {self.sessions} sessions"
                f" and {self.infra or 0} lost ones",
                why="bad sessions lie between 0 and the sessions counted, and none is negative",
                next_step="correct the counts",
            )


@dataclass(frozen=True)
class ArmCounts:
    """All runs of one arm."""

    name: str
    runs: tuple[Run, ...]

    @property
    def bad(self) -> int:
        """Bad sessions of all runs."""
        return sum(run.bad for run in self.runs)

    @property
    def sessions(self) -> int:
        """Sessions with an outcome, of all runs."""
        return sum(run.sessions for run in self.runs)

    @property
    def infra(self) -> int | None:
        """Sessions lost to the infrastructure, of all runs; None where a run did not count them."""
        lost = [run.infra for run in self.runs if run.infra is not None]
        return sum(lost) if len(lost) == len(self.runs) else None

    @property
    def rate(self) -> float | None:
        """Share of bad sessions; None without sessions, which is not 0 %."""
        return self.bad / self.sessions if self.sessions else None

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """Runs that counted something, merged where they share a boot."""
        merged: dict[str, Cluster] = {}
        for index, run in enumerate(self.runs):
            if run.sessions:
                key = f"run {index}" if run.boot is None else f"boot {run.boot}"
                before = merged.get(key, Cluster(0, 0))
                merged[key] = Cluster(before.bad + run.bad, before.sessions + run.sessions)
        return tuple(merged.values())


def arm(name: str, bad: Sequence[int], sessions: Sequence[int]) -> ArmCounts:
    """Return an arm from bare counts, one run each.

    Raises:
        InputError: the sequences differ in length, or a run has more bad than sessions.
    """
    if len(bad) != len(sessions):
        raise InputError(
            f"{name} has {len(bad)} counts of bad sessions for {len(sessions)} runs",
            why="each run needs both numbers",
            next_step="give bad/sessions for each run",
        )
    return ArmCounts(name, tuple(Run(b, s) for b, s in zip(bad, sessions, strict=True)))


def pearson(clusters: Iterable[Cluster]) -> tuple[float, int]:
    """Return Pearson's X2 of the clusters around their common rate, and its degrees of freedom.

    An arm in which nothing or everything is bad adds degrees of freedom but no X2.
    """
    kept = [cluster for cluster in clusters if cluster.sessions]
    sessions = sum(cluster.sessions for cluster in kept)
    bad = sum(cluster.bad for cluster in kept)
    degrees = max(len(kept) - 1, 0)
    if bad in (0, sessions):
        return 0.0, degrees
    rate = bad / sessions
    return (
        sum((c.bad - c.sessions * rate) ** 2 / (c.sessions * rate * (1 - rate)) for c in kept),
        degrees,
    )
