"""A campaign: runs of cells that wait, are taken, and end; what every queue of them promises."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar

from fleetctl.errors import InputError
from fleetctl.trial.reasons import in_words

T = TypeVar("T")


@dataclass(frozen=True)
class CellRun:
    """One run of one cell: what a worker takes.

    Attributes:
        id: content hash and number of the run: what is measured under it is never counted twice.
        cell: name of the cell, as people read it.
        arm: name of what has to stand on the hosts; cells that differ in the workload only
            share it.
        digest: content hash of the cell on its block: patches, flags, workload, host class.
        run: number of the run in its cell, from 0; run k of all cells sends the same requests.
        block: sites of equal hosts, one of which has to measure it.
        position: place in the order, from 0.
        attempt: grows each time it is taken; an answer to an older attempt does not count.
        faults: attempts that ended with a fault of the cell or of the host.
    """

    id: str
    cell: str
    arm: str
    digest: str
    run: int
    block: str
    position: int
    attempt: int = 0
    faults: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CellRun:
        """Return what `to_json` gave.

        Raises:
            InputError: it is something else.
        """
        return _built(cls, value)


@dataclass(frozen=True)
class CellResult:
    """What one run of one cell on one site brought.

    Attributes:
        id: of the cell run.
        digest: content hash of the cell.
        site: where it was measured.
        epoch: which boot of the site's hosts; empty where they did not say.
        trial: folder of its transcripts below the run's folder.
        facts: `TrialFacts.to_json()`.
    """

    id: str
    digest: str
    site: str
    epoch: str
    trial: str
    facts: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CellResult:
        """Return what `to_json` gave.

        Raises:
            InputError: it is something else.
        """
        return _built(cls, value)


def _built(cls: type[T], value: Mapping[str, Any]) -> T:
    try:
        return cls(**value)
    except TypeError as error:
        raise InputError(
            f"a campaign holds something that is no {cls.__name__}",
            why=in_words(error),
            next_step="it was written by another version of fleetctl; start a new run",
        ) from error


class RunPhase(enum.StrEnum):
    """Where a cell run stands."""

    WAITING = "waiting"
    TAKEN = "taken"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class RunState:
    """A cell run and how it fares.

    Attributes:
        site: that has it, or had it last; empty before the first.
        worker: that has it, or had it last.
        why: the last fault; empty without one.
    """

    run: CellRun
    phase: RunPhase
    site: str = ""
    worker: str = ""
    why: str = ""


@dataclass(frozen=True)
class CampaignState:
    """A campaign at one moment.

    Attributes:
        runs: in the order in which they are taken.
        quarantined: site -> why nothing is measured there any more.
    """

    runs: tuple[RunState, ...]
    quarantined: Mapping[str, str] = field(default_factory=dict)

    def in_phase(self, *phases: RunPhase, block: str | None = None) -> tuple[RunState, ...]:
        """Return the runs that stand there, of one block or of all."""
        return tuple(
            state
            for state in self.runs
            if state.phase in phases and block in (None, state.run.block)
        )

    @property
    def is_over(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self.in_phase(RunPhase.WAITING, RunPhase.TAKEN)


@dataclass(frozen=True)
class Place:
    """A site's place among the sites of its block.

    Attributes:
        index: runs whose position is that, counted round, are at home there.
        among: how many sites there are; 1 makes no difference between runs.
    """

    index: int = 0
    among: int = 1


ANYWHERE = Place()


class CellQueue(Protocol):
    """Who measures which cell run, durably: a killed worker loses its run, never a result.

    Every method is one transaction and may be called from any thread. `done`, `failed` and
    `give_back` answer False when the attempt is no longer the one under way: somebody presumed
    its worker dead, and what it says does not count.
    """

    def put(self, runs: Iterable[CellRun]) -> None:
        """Let runs wait; those whose id is known already stay what they are."""
        ...

    def take(
        self, site: str, *, block: str, worker: str, prefers: str = "", place: Place = ANYWHERE
    ) -> CellRun | None:
        """Give a waiting run of a block to a site, or None when none waits or it is quarantined.

        First come runs that this site has not had last, then those whose arm it prefers, then
        those that are at home on it, then those in front.
        """
        ...

    def done(self, run: CellRun, result: CellResult) -> bool:
        """Count a result."""
        ...

    def failed(self, run: CellRun, why: str) -> bool:
        """End a run without a result."""
        ...

    def give_back(self, run: CellRun, why: str, *, fault: bool) -> bool:
        """Let a run wait again; without a fault as if the site had never taken it."""
        ...

    def quarantine(self, site: str, why: str) -> None:
        """Let nothing be measured on a site any more."""
        ...

    def state(self) -> CampaignState:
        """Return how all runs fare."""
        ...

    def results(self) -> tuple[CellResult, ...]:
        """Return what was counted, in the order of the runs."""
        ...
