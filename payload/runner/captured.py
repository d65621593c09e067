"""One graph per batch-size bucket, as found; SGLANG_DSV4_GE_DIFF=1 adds the stash."""

from __future__ import annotations

from payload.runner.contract import RunnerParts
from payload.runner.graphs import GraphRunner

NAME = "captured"


def build(parts: RunnerParts) -> GraphRunner:
    """Return the variant."""
    return GraphRunner(parts, compares=parts.flags.ge_diff is True)
