"""The client's own health: how late its event loop runs and how much CPU it takes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from array import array
from collections.abc import Sequence

from fleetctl.trial.summary import MOST_LAG_P99_MS, ClientHealth

TICK_S = 0.01


class HealthMeter:
    """Measures the running event loop between `start` and `stop`."""

    def __init__(self) -> None:
        self._lags_ms = array("d")
        self._due_s = math.inf
        self._task: asyncio.Task[None] | None = None
        self._cpu_s = 0.0
        self._wall_s = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._cpu_s = time.process_time()
        self._wall_s = time.monotonic()
        self._task = asyncio.create_task(self._tick(), name="loop lag")

    async def stop(self) -> ClientHealth:
        """Return what was measured."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._note_lag(asyncio.get_running_loop().time())
        wall_s = time.monotonic() - self._wall_s
        ordered = sorted(self._lags_ms) or [0.0]
        return ClientHealth(
            processes=1,
            cpu_share=(time.process_time() - self._cpu_s) / wall_s if wall_s else 0.0,
            loop_lag_p50_ms=lower_percentile(ordered, 0.5),
            loop_lag_p99_ms=lower_percentile(ordered, 0.99),
            loop_lag_max_ms=ordered[-1],
            stalled_s=sum(lag for lag in ordered if lag > MOST_LAG_P99_MS) / 1000,
            wall_s=wall_s,
        )

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._due_s = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            self._note_lag(loop.time())

    def _note_lag(self, now_s: float) -> None:
        self._lags_ms.append(max(0.0, now_s - self._due_s) * 1000)


def lower_percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile, rounded towards the lower value.

    In a trial of under a second the nearest rank would be the maximum: one hiccup of the machine
    would void it.
    """
    return ordered[int(share * (len(ordered) - 1))]


def worst_of(healths: list[ClientHealth]) -> ClientHealth:
    """Return the health of a client made of several processes: the worst of each measure."""
    return ClientHealth(
        processes=len(healths),
        cpu_share=max(health.cpu_share for health in healths),
        loop_lag_p50_ms=max(health.loop_lag_p50_ms for health in healths),
        loop_lag_p99_ms=max(health.loop_lag_p99_ms for health in healths),
        loop_lag_max_ms=max(health.loop_lag_max_ms for health in healths),
        stalled_s=max(health.stalled_s for health in healths),
        wall_s=max(health.wall_s for health in healths),
    )
