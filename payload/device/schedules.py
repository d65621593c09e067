"""Replay a recorded step in an order of one's choice, on one thread: a race without chance.

Every order that the recorded events allow can happen on two free-running streams. Here one of
them is picked by a rule, so that what a race does to real memory can be shown, and shown again.
"""

from __future__ import annotations

from collections.abc import Callable

from payload.device.cpu import MAIN, SIDE, Await, CpuDevice, Item, Run, Segment, Signal

# Given the next item of each stream that could go on, returns the stream that does.
Rule = Callable[[dict[str, Item]], str]


class ScheduledDevice(CpuDevice):
    """A CPU device whose replays follow a rule instead of two threads' pace."""

    def __init__(self, rule: Rule, *, overlap: bool = True) -> None:
        super().__init__(overlap=overlap)
        self.rule = rule

    def run_segment(self, segment: Segment) -> None:
        """Run both lists on this thread, in the order that the rule picks.

        Raises:
            RuntimeError: both streams wait for ever.
        """
        place = {MAIN: 0, SIDE: 0}
        reached: set[int] = set()
        while True:
            left = {
                stream: segment.items(stream)[at]
                for stream, at in place.items()
                if at < len(segment.items(stream))
            }
            if not left:
                return
            ready = {stream: item for stream, item in left.items() if _can_go_on(item, reached)}
            if not ready:
                raise RuntimeError("both streams wait for ever")
            stream = self.rule(ready) if len(ready) > 1 else next(iter(ready))
            _go_on(ready[stream], reached)
            place[stream] += 1


def side_first(_ready: dict[str, Item]) -> str:
    """Let the indexer run as early as it can: nothing of the main stream comes between."""
    return SIDE


def main_first(_ready: dict[str, Item]) -> str:
    """Let the main stream run ahead to its next wait."""
    return MAIN


def main_before(kernel_name: str) -> Rule:
    """Let the main stream run ahead just before the side stream would run the kernel."""

    def rule(ready: dict[str, Item]) -> str:
        item = ready[SIDE]
        name = getattr(item.kernel, "__name__", "") if isinstance(item, Run) else ""
        return MAIN if name == kernel_name else SIDE

    return rule


def _can_go_on(item: Item, reached: set[int]) -> bool:
    return not isinstance(item, Await) or id(item.event) in reached


def _go_on(item: Item, reached: set[int]) -> None:
    match item:
        case Run():
            item()
        case Signal(event):
            reached.add(id(event))
        case Await():
            pass
