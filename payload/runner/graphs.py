"""Graphs by batch size: captured largest first into shared memory, replayed for what fits."""

from __future__ import annotations

from dataclasses import dataclass

from payload.device.contract import Graph
from payload.runner.contract import Batch, RunnerParts, StepInputs
from payload.runner.eager import EagerRunner
from payload.runner.stash import BucketStash, Comparison

WARM_UPS = 2


@dataclass(frozen=True)
class Captured:
    """A bucket's graph and, with GE_DIFF, the stash that it fills."""

    graph: Graph
    inputs: StepInputs
    stash: BucketStash | None


class GraphRunner:
    """Replays the first bucket that fits; larger batches run eagerly."""

    def __init__(self, parts: RunnerParts, *, compares: bool) -> None:
        self.buckets = parts.buckets
        self._parts = parts
        self._eager = EagerRunner(parts)
        self._captured: dict[int, Captured] = {}
        self._comparison = Comparison(parts.index, parts.log) if compares else None

    def prepare(self) -> None:
        """Capture every bucket, largest first, so that smaller ones reuse its memory."""
        for place, bucket in enumerate(reversed(self.buckets), start=1):
            message = "capturing graph bs=%d (%d/%d)"
            self._parts.log.info(message, bucket, place, len(self.buckets))
            self._captured[bucket] = self._capture(bucket)

    def step(self, batch: Batch) -> list[int]:
        """Return the next token of each row."""
        rows = len(batch.rows)
        bucket = next((size for size in self.buckets if size >= rows), None)
        if self._parts.flags.log_graph_key:
            self._parts.log.info("decode graph key bs=%s raw=%d", bucket or "eager", rows)
        if bucket is None:
            return self._eager.step(batch)
        captured = self._captured[bucket]
        self._parts.inputs.load(batch, bucket)
        captured.graph.replay()
        tokens: list[int] = captured.inputs.next_token[:rows].tolist()
        if self._comparison is not None and captured.stash is not None:
            self._comparison.compare(captured.stash, bucket=bucket, rows=rows)
        return tokens

    def findings(self) -> dict[str, object]:
        """Return what GE_DIFF has seen, if it is on."""
        return {} if self._comparison is None else self._comparison.summary()

    def _capture(self, bucket: int) -> Captured:
        device, forward = self._parts.device, self._parts.forward
        inputs = self._parts.inputs.first(bucket)
        for _ in range(WARM_UPS):
            forward(device, inputs)
        device.synchronize()
        stash = None if self._comparison is None else BucketStash()
        traced = self._parts.inputs.first(bucket, stash=stash)
        graph = device.capture(lambda: forward(device, traced))
        return Captured(graph, inputs, stash)
