"""A plan as people read it: what to be warned of first, then every diff once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.plan.diff import render_plan
from fleetctl.plan.jit import NO_CACHES
from fleetctl.workflow.prepare import HostPlan, SitePlan


def render(plans: Sequence[SitePlan]) -> list[str]:
    """Return the lines of a plan: warnings, then what each arm changes on which hosts.

    What an arm changes alike on several hosts is shown once.
    """
    hosts = [host for plan in plans for host in plan.hosts]
    warnings = [*_warnings(hosts)]
    lines = ["", *warnings] if warnings else []
    for (arm, told), names in _alike(hosts).items():
        first, *others = names
        same = f"; the same on {', '.join(others)}" if others else ""
        lines += ["", f"== {arm} on {first}{same}", *told]
    return lines


def _warnings(hosts: Sequence[HostPlan]) -> Iterator[str]:
    """Yield what may not be meant, each with its hosts: flags nobody reads, how a unit stops."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        for arm, plan in host.plans.items():
            for note in plan.notes:
                found.setdefault(f"warning: {arm}: {note}", []).append(host.reached.name)
    for host in hosts:
        for warning in host.warnings:
            found.setdefault(f"note: {warning}", []).append(host.reached.name)
    for told, names in found.items():
        yield f"{told} (on {', '.join(dict.fromkeys(names))})"


def _alike(hosts: Sequence[HostPlan]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """Return (arm, what it changes) -> hosts, arm by arm in the order of the arms."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for arm in dict.fromkeys(arm for host in hosts for arm in host.plans):
        for host in hosts:
            if arm in host.plans:
                caches = host.caches.get(arm, NO_CACHES)
                shown = render_plan(host.plans[arm], uses=caches.flags.values())
                told = (*shown, *caches.lines())
                found.setdefault((arm, told), []).append(host.reached.name)
    return found
