"""Which accesses of a captured step may race: the recorded order joined with the addresses.

An allocator's history knows lifetimes, a graph knows order; only together do they tell that two
kernels on different streams touch the same bytes with nothing between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from payload.device.cpu import MAIN, SIDE, Await, CpuGraph, Item, Run, Segment, Signal

STREAMS = (MAIN, SIDE)
Clock = Mapping[str, int]


@dataclass(frozen=True)
class Access:
    """One tensor of one launch.

    Attributes:
        stream: where the kernel runs.
        place: how many items of that stream come before it.
        kernel: its name.
        start: first byte.
        end: behind the last byte.
        is_write: whether it is the kernel's output.
    """

    stream: str
    place: int
    kernel: str
    start: int
    end: int
    is_write: bool


@dataclass(frozen=True)
class Hazard:
    """Two accesses to the same bytes, at least one a write, that nothing orders."""

    main: Access
    side: Access

    @property
    def shared_bytes(self) -> int:
        """How many bytes both touch."""
        return min(self.main.end, self.side.end) - max(self.main.start, self.side.start)


def hazards(graph: CpuGraph) -> tuple[Hazard, ...]:
    """Return all races that the graph allows, in the order of the main stream."""
    return tuple(hazard for segment in graph.segments for hazard in _of_segment(segment))


def _of_segment(segment: Segment) -> Iterator[Hazard]:
    clocks = {stream: _clocks(segment, stream) for stream in STREAMS}
    side = [(item, access) for item, access in _accesses(segment, SIDE)]
    for place, access in _accesses(segment, MAIN):
        for other_place, other in side:
            touches = access.start < other.end and other.start < access.end
            if not (touches and (access.is_write or other.is_write)):
                continue
            before = clocks[SIDE][other_place][MAIN] > place
            after = clocks[MAIN][place][SIDE] > other_place
            if not (before or after):
                yield Hazard(access, other)


def _clocks(segment: Segment, stream: str) -> list[Clock]:
    """Return, for each item of a stream, how many items of each stream surely ran before it."""
    other = SIDE if stream == MAIN else MAIN
    signalled = {
        id(item.event): place + 1
        for place, item in enumerate(segment.items(other))
        if isinstance(item, Signal)
    }
    seen = 0
    clocks: list[Clock] = []
    for place, item in enumerate(segment.items(stream)):
        if isinstance(item, Await):
            seen = max(seen, signalled[id(item.event)])
        clocks.append({stream: place, other: seen})
    return clocks


def _accesses(segment: Segment, stream: str) -> Iterator[tuple[int, Access]]:
    for place, item in enumerate(segment.items(stream)):
        yield from ((place, access) for access in _of_item(stream, place, item))


def _of_item(stream: str, place: int, item: Item) -> Iterator[Access]:
    if not isinstance(item, Run):
        return
    outputs = item.out if isinstance(item.out, tuple) else (item.out,)
    name = getattr(item.kernel, "__name__", repr(item.kernel))
    for tensor in (value for value in item.inputs if isinstance(value, Tensor)):
        yield Access(stream, place, name, *_range(tensor), is_write=False)
    for tensor in outputs:
        yield Access(stream, place, name, *_range(tensor), is_write=True)


def _range(tensor: Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    reach = sum((size - 1) * stride for size, stride in steps) if tensor.numel() else -1
    return start, start + (reach + 1) * tensor.element_size()
