"""No graph: every step launches its kernels anew, on exactly the rows there are."""

from __future__ import annotations

from payload.runner.contract import Batch, RunnerParts

NAME = "eager"


class EagerRunner:
    """Launches the model's step."""

    def __init__(self, parts: RunnerParts) -> None:
        self._parts = parts
        self.buckets: tuple[int, ...] = ()

    def prepare(self) -> None:
        """Do nothing."""

    def step(self, batch: Batch) -> list[int]:
        """Return the next token of each row."""
        rows = len(batch.rows)
        self._parts.inputs.load(batch, rows)
        inputs = self._parts.inputs.first(rows)
        self._parts.forward(self._parts.device, inputs)
        return inputs.next_token.tolist()

    def findings(self) -> dict[str, object]:
        """Return nothing: there is no instrument."""
        return {}


def build(parts: RunnerParts) -> EagerRunner:
    """Return the variant."""
    return EagerRunner(parts)
