"""Trials as a run remembers them, made up: a few counts decide the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleetctl.workflow.facts import TrialFacts

SESSIONS = 40
ARMS = {"A": "control", "B": "treatment"}
_EXPOSURE = {"concurrency": 30.0, "tokens": 90.0, "rounds": 3.0, "in_flight_s": 5.0, "batch": 30.0}


def trial(position: int, arm: str, run_index: int, bad: int, **changes: object) -> TrialFacts:
    """One sound trial, the flag A being 1 in the control and 0 in the treatment."""
    facts = TrialFacts(
        trial=f"trials/{position + 1:03d}-{arm}",
        arm=arm,
        host="h",
        host_class="c",
        run_index=run_index,
        block="",
        block_runs=0,
        started_s=float(position),
        wall_s=1.0,
        boot=f"b{position}",
        corrupted=bad,
        counted=SESSIONS,
        infra=0,
        planned=SESSIONS,
        counts={"leak": bad, "done": SESSIONS - bad},
        line=f"CORRUPTION sessions: {bad}/{SESSIONS}",
        exposure=_EXPOSURE,
        lag_p99_ms=4.0,
        concurrency_share=1.0,
        patches={},
        processes=({"A": "1" if arm == "control" else "0"},),
        workload_sha256="w",
    )
    return replace(facts, **changes)


def trials(order: str, bad: Mapping[str, Sequence[int]]) -> list[TrialFacts]:
    """Trials in an order such as ABBA, with the bad sessions of each arm's runs."""
    made, runs = [], {"A": 0, "B": 0}
    for position, letter in enumerate(order):
        run = runs[letter]
        made.append(trial(position, ARMS[letter], run, bad[letter][run]))
        runs[letter] += 1
    return made
