"""What the engine asks of a device, so that a GPU and a CPU run the same model code.

A device has two streams. Everything runs on the main stream, except what is launched inside
`side()` while overlap is on. Three rules hold on every device; variants and runners differ
only in how they live with them:

1. `empty` gives memory that belongs to the stream it was asked on. When the last reference to
   the tensor drops, the block may be handed out again *to that stream* at once, although
   the other stream may still be using it.
2. A captured graph knows addresses, not tensors: it keeps nothing alive.
3. Nothing orders the two streams but `side()` (side waits for main) and `join()` (main waits for
   side).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

Outputs = Tensor | tuple[Tensor, ...]


# `kernel(*inputs, out=...)` reads its inputs, writes `out`, and touches no other memory.
Kernel = Callable[..., object]
# What is captured: it launches kernels and returns nothing.
Body = Callable[[], None]


class Graph(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Run the recorded kernels at their recorded addresses; returns once they are queued."""
        ...


class Device(Protocol):
    """Two streams, one allocator, and graphs."""

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        ...

    @property
    def overlaps(self) -> bool:
        """Whether `side()` really leaves the main stream."""
        ...

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory of the current stream."""
        ...

    def launch(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Run `kernel(*inputs, out=out)` on the current stream."""
        ...

    def launch_outside_graph(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Run a kernel eagerly: a capture is split here and goes on behind it.

        Raises:
            RuntimeError: the side stream has not been joined.
        """
        ...

    def side(self) -> AbstractContextManager[None]:
        """Launch on the side stream, which first waits for the main stream."""
        ...

    def join(self) -> None:
        """Make the main stream wait for all that the side stream was given."""
        ...

    def capture(self, body: Body) -> Graph:
        """Record what `body` launches; nothing of it runs before the first replay."""
        ...

    def synchronize(self) -> None:
        """Wait until all streams are idle."""
        ...

    def close(self) -> None:
        """Stop what the device started."""
        ...
