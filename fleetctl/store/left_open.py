"""What runs of this machine did to a host and, as far as their logs know, did not take back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import FleetError
from fleetctl.store.run_folder import Event, RunFolder, list_runs

ROLLED_BACK = "rolled_back"
KEPT, UNFINISHED = "kept", "unfinished"


@dataclass(frozen=True)
class LeftOpen:
    """The last that a run's log says of a host.

    Attributes:
        run_id: of the run.
        state: `KEPT`, or `UNFINISHED` where it changed the host and no end is recorded.
        at_s: when.
        machine_id: of the host that bore the name then; empty where the run does not know it.
    """

    run_id: str
    state: str
    at_s: float
    machine_id: str


def left_open(root: Path, host: str) -> tuple[LeftOpen, ...]:
    """Return what runs left on a host by their own logs, newest first; damaged runs say nothing.

    A host that restored itself, or was brought back from another machine, is among it.
    """
    found = []
    for run in reversed(_runs(root)):
        with contextlib.suppress(FleetError):
            last = _last(run, host)
            if last is not None:
                state = KEPT if last.kind == "kept" else UNFINISHED
                found.append(LeftOpen(run.run_id, state, last.at_s, _machine_id(run, host)))
    return tuple(found)


def _runs(root: Path) -> list[RunFolder]:
    try:
        return list_runs(root)
    except FleetError:
        return []


def note_rollback(root: Path, run_id: str, host: str, at_s: float) -> None:
    """Let a run of this machine know that a host was brought back; others' runs are passed over.

    Raises:
        StoreError: it can't be written.
    """
    run = RunFolder(root / run_id)
    if run.has("run.json"):
        run.record(at_s, ROLLED_BACK, host=host)


def _last(run: RunFolder, host: str) -> Event | None:
    """Return the event by which a run left a host changed; None where it did not."""
    open_event = None
    for event in run.events():
        if host not in _hosts(event):
            continue
        if event.kind in ("deploying", "kept"):
            open_event = event
        elif event.kind in ("restored", ROLLED_BACK):
            open_event = None
    return open_event


def _hosts(event: Event) -> Iterator[str]:
    """Yield the hosts that an event is about; a site's name is those of its hosts."""
    yield from str(event.facts.get("site", "")).split("+")
    yield str(event.facts.get("host", ""))


def _machine_id(run: RunFolder, host: str) -> str:
    name = f"hosts/{host}/facts.json"
    facts = run.read_table(name).get("facts") if run.has(name) else None
    return str(facts.get("machine_id", "")) if isinstance(facts, dict) else ""
