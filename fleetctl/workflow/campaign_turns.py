"""Whose turn it is on a machine, and how long nobody had anything to do."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from fleetctl.clock import Clock

T = TypeVar("T")


class Turns:
    """At most so many at once, in the order in which they asked."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._asked: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn and hold it until the block is left."""
        ticket = object()
        with self._changed:
            self._asked.append(ticket)
            self._changed.wait_for(lambda: self._free > 0 and self._asked[0] is ticket)
            self._asked.popleft()
            self._free -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    @contextmanager
    def around(
        self, inner: AbstractContextManager[T], *, skips_leaving: Callable[[], bool]
    ) -> Iterator[T]:
        """Enter and leave a block each in a turn, and let others go on in between.

        Args:
            inner: the block.
            skips_leaving: says that leaving may take long and disturbs nobody: it needs no turn.
        """
        with self.turn():
            value = inner.__enter__()
        try:
            yield value
        except BaseException as error:
            if not self._leave(inner, error, skips_turn=skips_leaving()):
                raise
        else:
            self._leave(inner, None, skips_turn=skips_leaving())

    def _leave(
        self, inner: AbstractContextManager[T], error: BaseException | None, *, skips_turn: bool
    ) -> bool:
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        if skips_turn:
            return bool(inner.__exit__(kind, error, trace))
        with self.turn():
            return bool(inner.__exit__(kind, error, trace))


class Progress:
    """Since when a block has had nothing under way."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._working = 0
        self._since_s = clock.monotonic_s()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Say that a site of the block works while the block of code lasts."""
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                self._since_s = self._clock.monotonic_s()

    @property
    def idle_s(self) -> float:
        """How long nobody has worked; 0 while somebody does."""
        with self._lock:
            return 0.0 if self._working else self._clock.monotonic_s() - self._since_s
