"""Units that systemd stops along with another one: they go back with it.

A stop takes along what requires the unit, is bound to it or part of it (a router, an exporter), and
a start does not bring that back.
"""

from __future__ import annotations

from typing import Iterable, Iterator, Mapping, Sequence

from fleetctl.agent.systemd import ON_ITS_WAY, Systemctl
from fleetctl.clock import Clock

STOPPED_WITH = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
ENDED_BY_START = ("Conflicts", "ConflictedBy")
DEADLINE_S = 20.0
# a start that fails at once is on its way for a moment, one that loads a model for minutes
SETTLE_S = 2.0
POLL_S = 0.1


def stopped_with(systemctl: Systemctl, unit: str) -> tuple[str, ...]:
    """Return the units that run and that a stop of this one takes along, the nearest first."""
    known: dict[str, bool] = {}
    reached = [unit]
    while reached:
        named = [n for each in reached for n in _named(systemctl, each, STOPPED_WITH)]
        fresh = [name for name in named if name != unit and name not in known]
        found = _which_run(systemctl, fresh)
        known.update(found)
        reached = [name for name, runs in found.items() if runs]
    return tuple(name for name, runs in known.items() if runs)


def ended_by_start(systemctl: Systemctl, unit: str) -> tuple[str, ...]:
    """Return the units that run and that a start of this one ends."""
    found = _which_run(systemctl, _named(systemctl, unit, ENDED_BY_START))
    return tuple(name for name, runs in found.items() if runs)


def is_unread(systemctl: Systemctl, unit: str) -> bool:
    """Return whether a unit's files were changed and systemd has not read them yet."""
    return systemctl.show(unit, ("NeedDaemonReload",)).get("NeedDaemonReload") == "yes"


def start(systemctl: Systemctl, names: Sequence[str]) -> tuple[str, ...]:
    """Ask for a start of those that do not run, without waiting for it; return them.

    Without their dependencies: these ran when they did, and what was stopped by hand stays so.
    """
    down = [name for name, runs in _which_run(systemctl, names).items() if not runs]
    if down:
        mode = "--job-mode=ignore-dependencies"
        systemctl.run("reset-failed", "--", *down)
        systemctl.run("start", "--no-block", mode, "--no-ask-password", "--", *down)
    return tuple(down)


def start_again(systemctl: Systemctl, clock: Clock, names: Sequence[str]) -> tuple[str, ...]:
    """Start those that do not run, and return those that do not come up."""
    asked = start(systemctl, names)
    states = dict.fromkeys(asked, "")
    began_s = clock.monotonic_s()
    while any(state not in ("active", "failed") for state in states.values()):
        waited_s = clock.monotonic_s() - began_s
        is_under_way = all(state in ON_ITS_WAY for state in states.values())
        if waited_s >= (SETTLE_S if is_under_way else DEADLINE_S):
            break
        clock.sleep(POLL_S)
        states = {name: _state(systemctl, name) for name in asked}
    return tuple(name for name, state in states.items() if state not in ON_ITS_WAY)


def _named(systemctl: Systemctl, unit: str, properties: Sequence[str]) -> Iterator[str]:
    for value in systemctl.show(unit, properties).values():
        yield from value.split()


def _which_run(systemctl: Systemctl, units: Iterable[str]) -> Mapping[str, bool]:
    """Return whether each of these runs, or is on its way to."""
    return {name: _state(systemctl, name) in ON_ITS_WAY for name in dict.fromkeys(units)}


def _state(systemctl: Systemctl, unit: str) -> str:
    return systemctl.show(unit, ("ActiveState",)).get("ActiveState", "")
