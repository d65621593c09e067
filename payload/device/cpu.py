"""A CPU that stands in for a GPU: streams are threads, graphs are recorded addresses.

Eagerly a launch returns when the kernel has run, as on any CPU: the two streams never overlap in
time, which is the extreme case of a launch gap. Captured, nothing runs; what is recorded per
stream is the kernel and the addresses of its operands, planned by an arena in which a freed block
is reused at once. A replay hands each stream its list, and two threads run them at their own pace,
ordered only by the recorded events. So two streams that share bytes race on real memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch
from torch import Tensor

from payload.device.arena import Arena
from payload.device.contract import Body, Kernel, Outputs

MAIN = "main"
SIDE = "side"
ARENA_BYTES = 1 << 28


@dataclass(frozen=True)
class Run:
    """One recorded launch: the kernel and the addresses it was given."""

    kernel: Kernel
    inputs: tuple[object, ...]
    out: Outputs

    def __call__(self) -> None:
        """Run the kernel on what its addresses hold now."""
        self.kernel(*self.inputs, out=self.out)


@dataclass(frozen=True)
class Signal:
    """A stream reached this point."""

    event: threading.Event


@dataclass(frozen=True)
class Await:
    """A stream goes on only when another has signalled."""

    event: threading.Event


Item = Run | Signal | Await


@dataclass(frozen=True)
class Segment:
    """What the streams do between two points at which the host takes part."""

    main: list[Item] = field(default_factory=list)
    side: list[Item] = field(default_factory=list)

    def items(self, stream: str) -> list[Item]:
        """Return one stream's list."""
        return self.side if stream == SIDE else self.main


class StreamThread:
    """A stream: runs lists of items in order, one list at a time."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[Sequence[Item], Callable[[BaseException | None], None]]]
        self._queue = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"stream-{name}", daemon=True)
        self._thread.start()

    def submit(self, items: Sequence[Item], done: Callable[[BaseException | None], None]) -> None:
        """Queue a list; `done` is called with what went wrong, or None."""
        self._queue.put((items, done))

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._queue.put(((), _end))
        self._thread.join()

    def _serve(self) -> None:
        while True:
            items, done = self._queue.get()
            if done is _end:
                return
            done(_run(items))


def _end(_failure: BaseException | None) -> None:
    """Mark the end of a stream's queue."""


def _run(items: Sequence[Item]) -> BaseException | None:
    failure: BaseException | None = None
    for item in items:
        match item:
            case Run():
                try:
                    if failure is None:
                        item()
                except Exception as error:  # noqa: BLE001 - handed to the replay's caller
                    failure = error
            case Signal(event):
                event.set()  # also after a failure: the other stream must not hang
            case Await(event):
                event.wait()
                event.clear()
    return failure


class CpuGraph:
    """Segments for the streams, with host calls between them."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device
        self.segments: list[Segment] = [Segment()]
        self.between: list[Run] = []

    def replay(self) -> None:
        """Run the recorded step and wait for it."""
        for index, segment in enumerate(self.segments):
            self._device.run_segment(segment)
            if index < len(self.between):
                self.between[index]()


class CpuDevice:
    """Two worker threads as streams, and an arena for each as graph memory."""

    def __init__(self, *, overlap: bool, arena_bytes: int = ARENA_BYTES) -> None:
        torch.set_num_threads(1)  # a kernel runs on its stream's thread, and on no other
        self.torch_device = torch.device("cpu")
        self.overlaps = overlap
        self._arenas = {MAIN: Arena(arena_bytes), SIDE: Arena(arena_bytes)}
        self._threads = {MAIN: StreamThread(MAIN), SIDE: StreamThread(SIDE)}
        self._current = MAIN
        self._forked = False
        self._graph: CpuGraph | None = None

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return memory of the current stream: of its arena while capturing, else PyTorch's."""
        if self._graph is None:
            return torch.empty(tuple(shape), dtype=dtype)
        return self._arenas[self._current].empty(shape, dtype)

    def launch(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Run the kernel now, or record it while capturing."""
        run = Run(kernel, inputs, out)
        if self._graph is None:
            run()
        else:
            self._graph.segments[-1].items(self._current).append(self._by_address(run))

    def launch_outside_graph(self, kernel: Kernel, *inputs: object, out: Outputs) -> None:
        """Run the kernel now; while capturing, split the graph and run it between the parts.

        Raises:
            RuntimeError: the side stream has not been joined.
        """
        run = Run(kernel, inputs, out)
        if self._graph is None:
            run()
            return
        if self._forked:
            raise RuntimeError("the side stream must be joined before leaving the graph")
        self._graph.between.append(self._by_address(run))
        self._graph.segments.append(Segment())

    @contextmanager
    def side(self) -> Iterator[None]:
        """Launch on the side stream, which first waits for the main stream."""
        if not self.overlaps:
            yield
            return
        self._order(first=MAIN, then=SIDE)
        self._current, self._forked = SIDE, True
        try:
            yield
        finally:
            self._current = MAIN

    def join(self) -> None:
        """Make the main stream wait for the side stream, if anything was given to it."""
        if self._forked:
            self._order(first=SIDE, then=MAIN)
            self._forked = False

    def capture(self, body: Body) -> CpuGraph:
        """Record what `body` launches.

        Raises:
            RuntimeError: `body` left the side stream unjoined.
        """
        self._graph = graph = CpuGraph(self)
        try:
            body()
            if self._forked:
                raise RuntimeError("the side stream must be joined before the capture ends")
        finally:
            self._graph, self._forked = None, False
        return graph

    def run_segment(self, segment: Segment) -> None:
        """Run both lists on their threads and wait for both.

        Raises:
            Exception: what a kernel raised; the other stream has finished, too.
        """
        failures: SimpleQueue[BaseException | None] = SimpleQueue()
        self._threads[SIDE].submit(segment.side, failures.put)
        self._threads[MAIN].submit(segment.main, failures.put)
        failed = [failure for _ in (MAIN, SIDE) if (failure := failures.get()) is not None]
        if failed:
            raise failed[0]

    def synchronize(self) -> None:
        """Return at once: launches and replays return when they have run."""

    def close(self) -> None:
        """End the stream threads."""
        for thread in self._threads.values():
            thread.close()

    def graph_bytes(self) -> int:
        """Return the memory that captured graphs share."""
        return sum(arena.peak_bytes for arena in self._arenas.values())

    def _order(self, *, first: str, then: str) -> None:
        if self._graph is None:
            return
        event = threading.Event()
        segment = self._graph.segments[-1]
        segment.items(first).append(Signal(event))
        segment.items(then).append(Await(event))

    def _by_address(self, run: Run) -> Run:
        inputs = tuple(self._address(value) for value in run.inputs)
        if isinstance(run.out, tuple):
            return Run(run.kernel, inputs, tuple(self._alias(tensor) for tensor in run.out))
        return Run(run.kernel, inputs, self._alias(run.out))

    def _address(self, value: object) -> object:
        return self._alias(value) if isinstance(value, Tensor) else value

    def _alias(self, tensor: Tensor) -> Tensor:
        for arena in self._arenas.values():
            if arena.address_of(tensor) is not None:
                return arena.alias(tensor)
        return tensor  # weights, caches and inputs have addresses of their own
