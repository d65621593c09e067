"""Graphs in which no memory is reused before the streams have joined: the true fix.

A tensor's block goes back to its stream when the last reference drops. Here each reference lives
until the join that orders the streams; from then on reuse is ordered, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor

from payload.device.contract import Body, Device, Graph, Kernel, Outputs
from payload.runner.contract import RunnerParts
from payload.runner.graphs import GraphRunner

NAME = "ordered_streams"


class HeldUntilJoin:
    """A device whose tensors live at least until the next join."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._held: list[Tensor] = []
        self.torch_device = device.torch_device
        self.overlaps = device.overlaps

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory that outlives the join."""
        tensor = self._device.empty(shape, dtype)
        self._held.append(tensor)
        return tensor

    def join(self) -> None:
        """Join, and only then let go."""
        self._device.join()
        self._held.clear()

    def capture(self, body: Body) -> Graph:
        """Record what `body` launches; what is held at its end goes then."""
        try:
            return self._device.capture(body)
        finally:
            self._held.clear()

    def launch(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Launch on the current stream."""
        self._device.launch(kernel, *inputs, out=out)

    def launch_outside_graph(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Launch eagerly, between two parts of a graph."""
        self._device.launch_outside_graph(kernel, *inputs, out=out)

    def side(self) -> AbstractContextManager[None]:
        """Launch on the side stream, which first waits for the main stream."""
        return self._device.side()

    def synchronize(self) -> None:
        """Wait until all streams are idle."""
        self._device.synchronize()

    def close(self) -> None:
        """Stop what the device started."""
        self._device.close()


def build(parts: RunnerParts) -> GraphRunner:
    """Return the variant."""
    ordered = replace(parts, device=HeldUntilJoin(parts.device))
    return GraphRunner(ordered, compares=parts.flags.ge_diff is True)
