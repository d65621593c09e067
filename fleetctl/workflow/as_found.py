"""What is said before a comparison is made: arms that are alike, and what earlier runs left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fleetctl.store.run_folder import Event, RunFolder
from fleetctl.transaction.journal import State
from fleetctl.transaction.snapshot import Status
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.prepare import HostPlan, SitePlan

FOUND = "found"
"""Kind of the event by which a run remembers what it stood on."""
_LEFT = {State.COMMITTED.value: "the kept change", State.CONFLICT.value: "a change in conflict"}


def warnings_of(plans: Iterable[SitePlan]) -> list[str]:
    """Return what a plan of an experiment has to be read with, in the order of the hosts."""
    wanted = tuple(plans)
    hosts = [host for plan in wanted for host in plan.hosts]
    return [*arms_alike(hosts), *kept_changes(held_on(wanted))]


def arms_alike(hosts: Iterable[HostPlan]) -> Iterator[str]:
    """Yield on which hosts all arms would run the same bytes, so that nothing is compared."""
    names = [host.reached.name for host in hosts if _is_alike(host)]
    if names:
        yield (
            f"both arms run the same files and flags on {', '.join(names)}: a run would compare"
            " nothing, and count as A/A"
        )


def _is_alike(host: HostPlan) -> bool:
    first, *others = host.wanted.values()
    return bool(others) and all(other == first for other in others)


def held_on(plans: Iterable[SitePlan]) -> dict[str, Status]:
    """Return what fleetctl held on each host when it was planned."""
    return {host.reached.name: host.view.observed.status for plan in plans for host in plan.hosts}


def kept_changes(held: Mapping[str, Status]) -> Iterator[str]:
    """Yield what earlier runs left on hosts: it is part of "as found"."""
    return (_warning(*left) for left in _left(held))


def _warning(host: str, run: str, what: str) -> str:
    back = f"`fleetctl rollback {run} --host {host}`"
    then = (
        f"{back} takes it back"
        if what == _LEFT[State.COMMITTED.value]
        else f"no run gets that unit until {back} has decided it"
    )
    return f"{host} as found holds {what} of run {run}; {then}"


def _left(held: Mapping[str, Status]) -> Iterator[tuple[str, str, str]]:
    """Yield host, run and what it left there, each once."""
    for host, status in held.items():
        found = [(t.run_id, _LEFT[t.state]) for t in status.transactions if t.state in _LEFT]
        for run, what in dict.fromkeys(found):
            yield host, run, what


def say_what_is_left(edges: Edges, folder: RunFolder, plans: Iterable[SitePlan]) -> None:
    """Warn of what a run will stand on, and write it into the run's record; each once a run."""
    known = _known(folder)
    for host, run, what in _left(held_on(plans)):
        if (host, run) not in known:
            folder.record(edges.clock.now_s(), FOUND, host=host, run=run, what=what)
            edges.talk.say(f"warning: {_warning(host, run, what)}")


def take_over(folder: RunFolder, events: Iterable[Event]) -> None:
    """Write what a worker's record says of hosts as found into a run's own, each once."""
    known = _known(folder)
    for event in events:
        host, run, what = (str(event.facts.get(name, "")) for name in ("host", "run", "what"))
        if event.kind == FOUND and what in _LEFT.values() and (host, run) not in known:
            folder.record(event.at_s, FOUND, host=host, run=run, what=what)
            known.add((host, run))


def _known(folder: RunFolder) -> set[tuple[str, str]]:
    return {(e.facts["host"], e.facts["run"]) for e in folder.events() if e.kind == FOUND}


def notes_of(folder: RunFolder) -> tuple[str, ...]:
    """Return what a reader of a run must know of its hosts as found."""
    return tuple(
        f"{e.facts['host']} as found held {e.facts['what']} of run {e.facts['run']}:"
        " whatever ran there ran on top of it"
        for e in folder.events()
        if e.kind == FOUND
    )
