"""How an attempt at a cell run ends: counted, given back, or over; the same for every queue."""

from __future__ import annotations

from collections.abc import Callable

from fleetctl.errors import (
    ApplyFailed,
    DriftError,
    FleetError,
    HostError,
    InputError,
    LeaseHeld,
    NotProven,
    NotReady,
)
from fleetctl.store.campaign import CellQueue, CellResult, CellRun
from fleetctl.workflow.facts import TrialFacts

# what deploys twice and fails twice, on two sites where there are two, is the cell's own fault
MOST_FAULTS_OF_A_CELL = 2
MOST_FAULTS_OF_HOSTS = 5
MOST_SPOILT_TRIALS = 3

_OF_THE_CELL = (ApplyFailed, NotReady, NotProven, InputError)
_OF_THE_HOST = (HostError, LeaseHeld, DriftError)


def attempt(
    queue: CellQueue,
    run: CellRun,
    measure: Callable[[], CellResult],
    *,
    tries_again: bool = True,
) -> CellResult | None:
    """Measure a run that was taken, and tell the queue how that ended.

    A trial that was disturbed, or in which no session ended with an outcome, does not count and
    is made again; so is one whose host failed. What keeps failing is failed with its reason.

    Args:
        queue: that gave the run.
        run: as it was taken.
        measure: makes the trial.
        tries_again: a cell that fails gets another attempt, on another site where there is one.

    Returns:
        What was counted; None where the trial does not count.

    Raises:
        FleetError: what `measure` raised, after the queue was told: the hosts have to be
            restored.
    """
    try:
        result = measure()
    except FleetError as error:
        _tell(queue, run, error, tries_again=tries_again)
        raise
    except BaseException:
        queue.give_back(run, "a bug in fleetctl", fault=True)
        raise
    spoilt = spoilt_because(TrialFacts.from_json(result.facts))
    if not spoilt:
        return result if queue.done(run, result) else None
    _end(queue, run, spoilt, MOST_SPOILT_TRIALS)
    return None


def spoilt_because(facts: TrialFacts) -> str:
    """Return why a trial does not count; empty when it does."""
    reasons = [*facts.void_because, *facts.disturbances, *facts.unproven]
    if not facts.counted:
        reasons.append("no session ended with an outcome")
    return "; ".join(reasons)


def is_of_the_cell(error: FleetError) -> bool:
    """Whether an error says something about what was deployed, not about the host."""
    return isinstance(error, _OF_THE_CELL)


def _tell(queue: CellQueue, run: CellRun, error: FleetError, *, tries_again: bool) -> None:
    if is_of_the_cell(error):
        _end(queue, run, str(error), MOST_FAULTS_OF_A_CELL if tries_again else 1)
    elif isinstance(error, _OF_THE_HOST):
        _end(queue, run, str(error), MOST_FAULTS_OF_HOSTS)
    else:
        queue.give_back(run, str(error), fault=False)


def _end(queue: CellQueue, run: CellRun, why: str, most_faults: int) -> None:
    if run.faults + 1 >= most_faults:
        queue.failed(run, why)
    else:
        queue.give_back(run, why, fault=True)
