"""The operator's Ctrl-C as a value: whoever waits is told, whoever restores is not disturbed."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from fleetctl.clock import Clock
from fleetctl.errors import Interrupted


def after_a_stop(kind: str, run_id: str) -> str:
    """Return what to do after Ctrl-C: A/A runs are measured whole, others go on where they were."""
    if kind == "aa":
        return f"`fleetctl results show {run_id}` has what was measured; `fleetctl aa` starts anew"
    return f"`fleetctl resume {run_id}` goes on"


class Stop:
    """Set once, seen by everybody who works for this run."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason = ""

    def ask(self, reason: str) -> None:
        """Ask for an orderly end."""
        self._reason = self._reason or reason
        self._event.set()

    @property
    def is_asked(self) -> bool:
        """Whether an end was asked for."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise Interrupted when an end was asked for."""
        if self._event.is_set():
            raise Interrupted(
                "stopped before the end",
                why=self._reason,
                next_step="run the same command again when you like",
            )

    def wait(self, duration_s: float) -> None:
        """Wait; raise Interrupted as soon as an end is asked for."""
        self._event.wait(duration_s)
        self.check()


@dataclass(frozen=True)
class StoppableClock:
    """A clock in which a waiting run hears Ctrl-C; satisfies `Clock`."""

    inner: Clock
    stop: Stop

    def now_s(self) -> float:
        """Return seconds since the epoch."""
        return self.inner.now_s()

    def monotonic_s(self) -> float:
        """Return seconds of the monotonic clock."""
        return self.inner.monotonic_s()

    def sleep(self, duration_s: float) -> None:
        """Wait, or raise Interrupted as soon as an end is asked for."""
        self.stop.wait(duration_s)
