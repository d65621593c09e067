"""When one value for all servers would be a guess."""

from __future__ import annotations

import re

from fleetctl.environment.shell.analysis import Analysis, Launch
from fleetctl.environment.shell.dataflow import Means
from fleetctl.environment.shell.observation import Observation
from fleetctl.environment.shell.tree import For, bytes_of
from fleetctl.errors import EditRefused
from fleetctl.spec.quoted import quoted

_OWN = frozenset({Means.PREFIX, Means.ENV_ARGUMENT, Means.CONTAINER_OPTION})


def check_conflicts(analysis: Analysis, name: str) -> None:
    """Refuse a name that servers of one run were given different values of on purpose.

    Servers that replace each other (a restart, the branches of a role) may differ: one of
    them runs. Servers that run beside each other, or carry the value in their own command, may not.

    Raises:
        EditRefused: `ambiguous`, or `unsupported` where a signal handler writes it.
    """
    if name in analysis.asynchronous:
        raise EditRefused(
            f"a signal handler of the script writes {name}",
            code="unsupported",
            why="it may run at any moment, also between an edit and the server",
            next_step="take it out of the handler, or set the flag in the unit",
        )
    starts = {launch.start: launch for launch in analysis.launches}
    for first, second in sorted(analysis.pairs):
        one, other = starts.get(first), starts.get(second)
        if one is not None and other is not None:
            _check_pair(name, one, other)
    for launch in analysis.launches:
        if any(_follows_loop(seen, name) for seen in launch.observations):
            raise _ambiguous(name, launch, launch)


def _check_pair(name: str, one: Launch, other: Launch) -> None:
    if len(one.constants(name) | other.constants(name)) < 2:
        return
    beside = any(seen.background for seen in one.observations)
    if beside or (_carries(one, name) and _carries(other, name)):
        raise _ambiguous(name, one, other)


def _carries(launch: Launch, name: str) -> bool:
    return any(write.means in _OWN for write in launch.variable(name).writers)


def _follows_loop(seen: Observation, name: str) -> bool:
    """Say whether each round of a loop starts a server with a value of its own."""
    writes = seen.variable(name).writers
    if len(writes) != 1 or not (seen.background or any(w.means in _OWN for w in writes)):
        return False
    site = next(iter(writes)).site
    if site is None:
        return False
    raw = seen.reading.raw(site.value_start, site.end)
    loops = [
        p.statement.command.name
        for p in seen.places
        if p is not None and isinstance(p.statement.command, For)
    ]
    return any(re.search(rb"\$\{?" + bytes_of(loop) + rb"\b", raw) for loop in loops)


def _ambiguous(name: str, one: Launch, other: Launch) -> EditRefused:
    values = sorted(one.constants(name) | other.constants(name))
    shown = " and ".join(quoted(v) for v in values) or "a value per round of its loop"
    where = f"lines {one.line} and {other.line}" if one is not other else f"line {one.line}"
    return EditRefused(
        f"servers of this script differ in {name}",
        code="ambiguous",
        why=f"{where} give them {shown} on purpose; one value for all would be a guess",
        line=other.line,
        next_step="split the script per server, or edit the line you mean by hand",
    )
