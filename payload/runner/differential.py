"""Graphs that are compared with an eager run after each replay, unless SGLANG_DSV4_GE_DIFF=0."""

from __future__ import annotations

from payload.runner.contract import RunnerParts
from payload.runner.graphs import GraphRunner

NAME = "differential"


def build(parts: RunnerParts) -> GraphRunner:
    """Return the variant."""
    return GraphRunner(parts, compares=parts.flags.ge_diff is not False)
