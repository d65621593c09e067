"""How a campaign fares: counts of runs, who has what, what failed, which sites are set aside."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fleetctl.report.tables import Table
from fleetctl.report.terminal import section
from fleetctl.store.campaign import CampaignState, RunPhase, RunState


def status_lines(run_id: str, state: CampaignState) -> list[str]:
    """Return the state of a campaign for people."""
    counts = Counter(one.phase for one in state.runs)
    told = ", ".join(f"{counts[phase]} {phase}" for phase in RunPhase if counts[phase])
    lines = [f"{run_id}: {len(state.runs)} cell runs: {told or 'none'}"]
    sites = Counter(one.site for one in state.in_phase(RunPhase.DONE))
    if sites:
        lines.append("done by site: " + ", ".join(f"{n} {s}" for s, n in sorted(sites.items())))
    at_work = state.in_phase(RunPhase.TAKEN)
    faulty = [one for one in state.runs if one.why and one.phase is not RunPhase.DONE]
    for title, runs in (("Under way", at_work), ("Trouble", faulty)):
        if runs:
            lines += ["", *section(_table(title, runs))]
    if state.quarantined:
        rows = tuple((site, first_line(why)) for site, why in state.quarantined.items())
        lines += ["", *section(Table("Quarantined", ("site", "why"), rows))]
    return lines


def _table(title: str, runs: tuple[RunState, ...] | list[RunState]) -> Table:
    header = ("cell", "run", "phase", "site", "faults", "why")
    rows = tuple(
        (
            one.run.cell,
            str(one.run.run + 1),
            one.phase,
            one.site,
            str(one.run.faults),
            first_line(one.why),
        )
        for one in runs
    )
    return Table(title, header, rows)


def first_line(why: str) -> str:
    """Return a reason without the log lines below it: JSON and the run's folder have them all."""
    return why.partition("\n")[0]


def status_json(run_id: str, state: CampaignState) -> dict[str, Any]:
    """Return the state of a campaign as plain values."""
    return {
        "schema": "fleetctl.campaign/1",
        "run": run_id,
        "counts": dict(Counter(str(one.phase) for one in state.runs)),
        "quarantined": dict(state.quarantined),
        "runs": [
            {
                **one.run.to_json(),
                "phase": str(one.phase),
                "site": one.site,
                "worker": one.worker,
                "why": one.why,
            }
            for one in state.runs
        ],
    }
