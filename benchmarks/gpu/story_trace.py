"""Which kernels of two streams share bytes with nothing to order them, in a graph that is captured.

The accesses are noted while the graph is captured, with the addresses that PyTorch's allocator
really gave, temporaries inside kernels included. The emulated device has its own list
(`payload.device.hazards`); a CUDA graph keeps none that a program could read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from payload.device.contract import Body, Device, Graph, Kernel, Outputs

MAIN, SIDE = "main", "side"
Key = tuple[int, str, str, str, str]


@dataclass(frozen=True)
class Access:
    """A range of bytes that a launch reads or writes.

    Attributes:
        stream: `main` or `side`.
        kernel: the launched kernel, and the operator inside it.
        start: first address.
        end: the address behind the last.
        is_write: whether it writes.
    """

    stream: str
    kernel: str
    start: int
    end: int
    is_write: bool


@dataclass
class Fork:
    """What both streams do between a fork and its join."""

    accesses: list[Access] = field(default_factory=list)


@dataclass(frozen=True)
class Shared:
    """Two unordered accesses that share bytes.

    Attributes:
        main: the main stream's kernel.
        side: the side stream's kernel.
        main_writes: whether the main stream writes.
        side_writes: whether the side stream writes.
        offset: of the shared bytes in the side stream's range.
        shared_bytes: how many.
        side_bytes: of the side stream's range.
    """

    main: str
    side: str
    main_writes: bool
    side_writes: bool
    offset: int
    shared_bytes: int
    side_bytes: int


class _Spy(TorchDispatchMode):
    """Notes the operators inside a kernel, so that its temporaries are seen."""

    def __init__(self, device: TracingDevice, kernel: str) -> None:
        super().__init__()
        self._device = device
        self._kernel = kernel

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        _types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        name = f"{self._kernel}/{func.__name__.split('.')[0]}"
        if not getattr(func, "is_view", False):
            self._device.note(name, (args, kwargs), is_write=False)
            self._device.note(name, result, is_write=True)
        return result


class TracingDevice:
    """A device that notes accesses while it captures."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._stream = MAIN
        self._capturing = False
        self._fork: Fork | None = None
        self.graphs: list[list[Fork]] = []
        self.torch_device = device.torch_device
        self.overlaps = device.overlaps

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory of the current stream."""
        return self._device.empty(shape, dtype)

    def launch(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Launch, and note the accesses if a graph is captured and the streams are forked."""
        if not (self._capturing and self._fork):
            self._device.launch(kernel, *inputs, out=out)
            return
        name = getattr(kernel, "__name__", repr(kernel))
        self.note(name, inputs, is_write=False)
        self.note(name, out, is_write=True)
        with _Spy(self, name):
            self._device.launch(kernel, *inputs, out=out)

    def launch_outside_graph(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Launch eagerly, between two parts of a graph."""
        self._device.launch_outside_graph(kernel, *inputs, out=out)

    @contextmanager
    def side(self) -> Iterator[None]:
        """Launch on the side stream, which first waits for the main stream."""
        with self._device.side():
            if self._capturing and self.overlaps and self._fork is None:
                self._fork = Fork()
                self.graphs[-1].append(self._fork)
            self._stream = SIDE
            try:
                yield
            finally:
                self._stream = MAIN

    def join(self) -> None:
        """Make the main stream wait for the side stream."""
        self._device.join()
        self._fork = None

    def capture(self, body: Body) -> Graph:
        """Record what `body` launches, and note what it touches."""
        self.graphs.append([])
        self._capturing = True
        try:
            return self._device.capture(body)
        finally:
            self._capturing = False
            self._fork = None

    def synchronize(self) -> None:
        """Wait until all streams are idle."""
        self._device.synchronize()

    def close(self) -> None:
        """Stop what the device started."""
        self._device.close()

    def note(self, kernel: str, values: object, *, is_write: bool) -> None:
        """Note the bytes of all tensors in `values`."""
        if self._fork is None:
            return
        for value in tree_leaves(values):
            if isinstance(value, Tensor) and value.numel():
                start = value.data_ptr()
                reach = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
                end = start + (reach + 1) * value.element_size()
                access = Access(self._stream, kernel, start, end, is_write)
                self._fork.accesses.append(access)


def shared(forks: Sequence[Fork]) -> list[Shared]:
    """Return the races of one graph, each once though it has several layers."""
    found: dict[tuple[object, ...], Shared] = {}
    for fork in forks:
        mains = [access for access in fork.accesses if access.stream == MAIN]
        sides = [access for access in fork.accesses if access.stream == SIDE]
        for main in mains:
            for side in sides:
                start, end = max(main.start, side.start), min(main.end, side.end)
                if start >= end or not (main.is_write or side.is_write):
                    continue
                race = Shared(
                    main.kernel,
                    side.kernel,
                    main.is_write,
                    side.is_write,
                    start - side.start,
                    end - start,
                    side.end - side.start,
                )
                found.setdefault(tuple(vars(race).values()), race)
    return list(found.values())
