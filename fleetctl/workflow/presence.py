"""Hosts that went away and came back: noticed at once, waited for, brought back, held anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fleetctl.errors import (
    ApplyFailed,
    FleetError,
    HostError,
    Interrupted,
    LeaseHeld,
    NotProven,
    NotReady,
    NotRestored,
)
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.stopping import Stop, StoppableClock
from fleetctl.workflow.telling import gravest_of

PATIENCE_S = 600.0
_MOST_ABSENCES = 3
# so looks, too, what was restored under our hands: by an unlock, between two renewals
_AS_IF_LOST = (ApplyFailed, NotProven, NotReady)
_LOOK_EVERY_S = 2.0


class StopOrAbsence(Stop):
    """Asks whoever waits to end also when a host or its lease is lost: it waits in vain then."""

    def __init__(self, stop: Stop, keepers: Sequence[LeaseKeeper]) -> None:
        super().__init__()
        self._operator = stop
        self._keepers = tuple(keepers)

    @property
    def is_asked(self) -> bool:
        """Whether an end was asked for, or a host is lost."""
        return self._operator.is_asked or any(keeper.is_disturbed for keeper in self._keepers)

    def ask(self, reason: str) -> None:
        """Ask for an orderly end of the whole run."""
        self._operator.ask(reason)

    def check(self) -> None:
        """Raise when an end was asked for, or a host is lost.

        Raises:
            Interrupted: the operator asked.
            ConnectionLost, LeaseHeld: as their names say.
        """
        self._operator.check()
        for keeper in self._keepers:
            keeper.check()

    def wait(self, duration_s: float) -> None:
        """Wait; raise as `check` does."""
        self._operator.wait(duration_s)
        self.check()


def watchful(edges: Edges, keepers: Sequence[LeaseKeeper]) -> Edges:
    """Return edges whose waits end when one of the hosts is lost."""
    stop = StopOrAbsence(edges.stop, keepers)
    return replace(edges, stop=stop, clock=StoppableClock(edges.clock.inner, stop))


def through_absences(
    edges: Edges,
    keepers: Sequence[LeaseKeeper],
    *,
    act: Callable[[Edges], None],
    back: Callable[[Sequence[str], FleetError], None],
) -> None:
    """Act; when a host or we were away meanwhile, call `back` and act once more.

    A failure counts as an absence only where the connection or this machine was gone; a lease
    that somebody ended on purpose is not taken again.

    Args:
        edges: the outside world.
        keepers: of the hosts that `act` works on.
        act: is given edges whose waits end when a host is lost.
        back: brings the named hosts back; the error says what was noticed of their absence.

    Raises:
        FleetError: as `act` and `back`, or when hosts keep going away.
    """
    for absences in range(_MOST_ABSENCES + 1):
        try:
            act(watchful(edges, keepers))
        except FleetError as error:
            cause = _cause(edges, keepers, error)
            away = [keeper.name for keeper in keepers if keeper.is_away]
            if edges.stop.is_asked or not away or absences == _MOST_ABSENCES:
                raise cause from error.__cause__
            back(away, cause)
        else:
            return


def _cause(edges: Edges, keepers: Sequence[LeaseKeeper], error: FleetError) -> FleetError:
    """Return an error; for work that was ended because a host was lost, that loss."""
    if not isinstance(error, (Interrupted, *_AS_IF_LOST)) or edges.stop.is_asked:
        return error
    try:
        for keeper in keepers:
            if isinstance(error, _AS_IF_LOST):
                keeper.ask()
            keeper.check()
    except (HostError, LeaseHeld) as lost:
        return lost
    return error


def come_back(edges: Edges, keepers: Sequence[LeaseKeeper], resume: str, patience_s: float) -> None:
    """Wait until every host answers again, as found, and hold them all anew.

    Hosts that never were away go back to as found at once: a deployment is changed as a whole.

    Args:
        edges: the outside world.
        keepers: of the hosts of a site.
        resume: the command that goes on with the run later; empty where there is none.
        patience_s: how long to wait.

    Raises:
        Interrupted: the operator asked for an end.
        NotRestored: a host did not answer in time, or could not bring itself back.
        RestoreConflict: somebody changed a file of ours meanwhile.
        LeaseHeld: somebody took or unlocked a host; what this run had changed on it is restored.
    """
    until_s = edges.clock.monotonic_s() + patience_s
    silent = _not_regained(keepers)
    while silent:
        if edges.clock.monotonic_s() >= until_s:
            raise _never_back(silent, resume, patience_s)
        edges.clock.sleep(_LOOK_EVERY_S)
        silent = _not_regained(silent)


def bring_back_late(
    edges: Edges, keepers: Sequence[LeaseKeeper], resume: str, patience_s: float
) -> None:
    """Restore hosts that could not be reached when they were to be; to call after their blocks.

    Raises:
        NotRestored, RestoreConflict: the gravest of what is left to do; the rest is told.
    """
    left = what_is_left(edges, keepers, resume, patience_s)
    if left:
        raise gravest_of(edges.talk, list(left.values()))


def what_is_left(
    edges: Edges, keepers: Sequence[LeaseKeeper], resume: str, patience_s: float
) -> dict[LeaseKeeper, FleetError]:
    """Wait for hosts that could not be reached when they were to be restored, and do it then.

    An operator who asked for an end is not kept waiting: the hosts restore themselves.

    Returns:
        What could not be restored, and why; what each error says is what is left to do.
    """
    absent = [keeper for keeper in keepers if keeper.is_silent]
    until_s = edges.clock.monotonic_s() + patience_s if absent else 0.0
    for keeper in absent:
        edges.talk.say(f"{keeper.left}; waiting for it to answer")
    while absent := [keeper for keeper in absent if not keeper.brings_back()]:
        if edges.stop.is_asked or edges.clock.monotonic_s() >= until_s:
            break
        # the clock below: whoever asked for an end is heard above
        edges.clock.inner.sleep(_LOOK_EVERY_S)
    left = {keeper: keeper.left for keeper in keepers if keeper.left is not None}
    for keeper in absent:
        left[keeper].next_step += f"; then {resume} goes on" if resume else ""
    return left


def _not_regained(keepers: Iterable[LeaseKeeper]) -> dict[LeaseKeeper, HostError]:
    """Hold hosts anew; return those that do not answer, and why."""
    return {one: error for one in keepers if (error := _regain(one)) is not None}


def _regain(keeper: LeaseKeeper) -> HostError | None:
    """Hold a host anew; return why it does not answer, if it does not."""
    try:
        keeper.regain()
    except HostError as error:
        return error
    return None


def _never_back(
    silent: Mapping[LeaseKeeper, HostError], resume: str, patience_s: float
) -> NotRestored:
    names = ", ".join(keeper.name for keeper in silent)
    last = "; ".join(str(error) for error in silent.values())
    return NotRestored(
        f"{names} did not answer again within {patience_s:g} s",
        why=f"{last}; a host restores itself when its lease ends, but nobody has seen it",
        next_step="`fleetctl status` when it answers again"
        + (f"; then {resume} goes on" if resume else ""),
    )
