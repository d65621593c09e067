"""From trial results to counts and guard facts. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.analysis.counts import DrawnBlock, Run
from fleetctl.analysis.guards import ArmFacts, Exposure
from fleetctl.trial.summary import TrialResult


def run_of(
    result: TrialResult,
    *,
    trial: str,
    boot: str | None = None,
    position: int | None = None,
    block: DrawnBlock | None = None,
    host: str = "",
) -> Run:
    """Return what a trial adds to its arm; `trial` is where its transcripts lie."""
    return Run(
        bad=result.corrupted,
        sessions=result.counted,
        infra=result.sessions - result.counted,
        trial=trial,
        boot=boot,
        position=position,
        block=block,
        host=host,
    )


def facts_of(
    results: Sequence[TrialResult],
    *,
    unproven: tuple[str, ...] | None = None,
    missed_triggers: tuple[str, ...] | None = None,
) -> ArmFacts:
    """Return how the trials of one arm went; a trial that may not be used is a disturbance.

    What was not looked at stays None.
    """
    lags = [r.client.loop_lag_p99_ms for r in results if r.client is not None]
    return ArmFacts(
        unproven=unproven,
        disturbances=tuple(reason for result in results for reason in result.invalid_because),
        missed_triggers=missed_triggers,
        exposure=_exposure_of(results),
        planned_sessions=sum(result.sessions for result in results),
        client_lag_p99_ms=max(lags, default=None),
    )


def _exposure_of(results: Sequence[TrialResult]) -> Exposure:
    """Return the arm's exposure; what nobody measured stays unknown."""
    measured = [result for result in results if result.exposure.requests]
    counted = sum(result.counted for result in measured)
    if not counted or len(measured) < len(results):
        return Exposure()
    loads = [result.exposure for result in measured]
    in_flight_s, wall_s = sum(e.concurrency_s for e in loads), sum(e.wall_s for e in loads)
    tokens = sum(e.completion_tokens for e in loads)
    return Exposure(
        concurrency=in_flight_s / wall_s if wall_s else None,
        tokens=tokens / counted if tokens else None,
        rounds=sum(e.rounds for e in loads) / counted,
        in_flight_s=in_flight_s / counted,
    )
