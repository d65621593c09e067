"""Time as a value one can pass in: code that waits takes a `Clock`, tests take a fake one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What code needs to know about time."""

    def now_s(self) -> float:
        """Return seconds since the epoch, for records people read."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never jump, for deadlines."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_s(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        """Wait for `duration_s` seconds."""
        time.sleep(duration_s)
