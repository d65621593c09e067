"""Proof that a host is back: every file, mode, owner and the unit, compared with as found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.errors import ExitCode, HostError, NotRestored
from fleetctl.report.numbers import count
from fleetctl.transaction.snapshot import PathState, Query, UnitState
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.observe import look
from fleetctl.workflow.prepare import HostPlan

_COMPARED = ("kind", "sha256", "mode", "owner", "group", "mtime_ns", "xattr_sha256", "link_target")
# `inactive` is what a unit is at boot before its turn comes
_ON_THE_WAY = ("activating", "deactivating", "reloading", "inactive")
# a service that loads a model before it calls itself up: as long as systemd itself is patient
_STARTING = ("condition", "start-pre", "start", "start-post")
_START_S = 1800.0
_SETTLE_S = 60.0
_POLL_S = 0.5
_UNIT = ("ActiveState", "SubState", "UnitFileState", "FragmentPath", "DropInPaths")


@dataclass(frozen=True)
class RestoredProof:
    """What was shown about a host after a run.

    Attributes:
        files: path -> sha256, or "absent".
        differs: what is not as found; empty when the host is back.
    """

    host: str
    files: tuple[tuple[str, str], ...]
    differs: tuple[str, ...]


def prove_restored(edges: Edges, plan: HostPlan) -> RestoredProof:
    """Compare a host with how it was found.

    Raises:
        NotRestored: something differs, or the host could not be looked at; the message says what.
    """
    try:
        return _prove_restored(edges, plan)
    except HostError as error:
        name = plan.reached.name
        raise NotRestored(
            f"{name} could not be looked at after it was restored",
            why=str(error),
            next_step=f"`fleetctl status --host {name}` when it answers again",
        ) from error


def _prove_restored(edges: Edges, plan: HostPlan) -> RestoredProof:
    host = plan.reached
    now = look(host, [path for path, state in plan.touched.items() if state.kind != "directory"])
    differs = [
        line
        for path, before in plan.touched.items()
        for line in _differences(before, now.get(path, before))
    ]
    differs += _settled_differences(edges, plan)
    files = tuple(
        (path, state.sha256 or state.kind)
        for path, state in now.items()
        if state.kind != "directory"
    )
    if differs:
        raise NotRestored(
            f"{host.name} is not as it was found",
            why="\n       ".join(differs),
            next_step=f"`fleetctl rollback --list --host {host.name}` shows what is held there",
            exit_code=ExitCode.FAILED_NOT_RESTORED,
        )
    edges.talk.say(f"{host.name}: restored: {count(len(files), 'path')} and the unit are as found")
    for path, digest in files:
        edges.talk.say(f"  {digest[:12]:<12} {path}")
    return RestoredProof(host.name, files, ())


def _settled_differences(edges: Edges, plan: HostPlan) -> list[str]:
    """Return how the unit differs from as found, once a start under way (a boot's) has ended."""
    host, before = plan.reached, plan.view.unit
    # the clock below: after Ctrl-C the host is proven all the same
    clock = edges.clock.inner
    began_s = clock.monotonic_s()
    while True:
        unit = host.agent.observe(Query(units=(host.host.unit,))).units[0]
        differs = list(_unit_differences(before, unit))
        if not differs or unit.properties.get("ActiveState") not in _ON_THE_WAY:
            return differs
        step = unit.properties.get("SubState", "")
        if clock.monotonic_s() - began_s >= (_START_S if step in _STARTING else _SETTLE_S):
            return differs
        if step in _STARTING:
            edges.talk.progress(host.name, f"{host.name}: {unit.unit} is on its way up: {step}")
        clock.sleep(_POLL_S)


def _differences(before: PathState, now: PathState) -> Iterator[str]:
    for name in _COMPARED:
        was, is_now = getattr(before, name), getattr(now, name)
        if before.kind == "directory" and name in ("mtime_ns",):
            continue
        if was != is_now:
            yield f"{before.path}: {name} was {was}, is {is_now}"


def _unit_differences(before: UnitState, now: UnitState) -> Iterator[str]:
    for name in _UNIT:
        was, is_now = before.properties.get(name, ""), now.properties.get(name, "")
        if was != is_now:
            yield f"{before.unit}: {name} was {was}, is {is_now}"
