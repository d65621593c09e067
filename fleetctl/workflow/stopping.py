"""The operator's Ctrl-C as a value: whoever waits is told, whoever restores is not disturbed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fleetctl.clock import Clock
from fleetctl.errors import Interrupted


def after_a_stop(kind: str, run_id: str) -> str:
    """Return what to do after Ctrl-C: A/A runs are measured whole, others go on where they were."""
    if kind == "aa":
        return f"`fleetctl results show {run_id}` has what was measured; `fleetctl aa` starts anew"
    return f"`fleetctl resume {run_id}` goes on"


@dataclass(frozen=True)
class Holding:
    """What a process holds on hosts.

    Attributes:
        kind: of the run.
        run_id: of the run.
        hosts: under its leases now; they are as found where there is none.
    """

    kind: str
    run_id: str
    hosts: tuple[str, ...] = ()

    def leaving(self) -> list[str]:
        """Return what to type for hosts that are left behind, and to go on."""
        resume = after_a_stop(self.kind, self.run_id)
        if not self.hosts:
            return [f"it holds no host; {resume}"]
        there = " ".join(f"--host {host}" for host in self.hosts)
        return [
            f"when its lease ends, each host restores itself ({', '.join(self.hosts)}):"
            f" `fleetctl status {there}` says when",
            f"at once: `fleetctl rollback {self.run_id} {there}`",
            resume,
        ]


class Stop:
    """Set once, seen by everybody who works for this run; knows what they hold."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason = ""
        # replaced whole, never changed: a signal handler reads it at any moment
        self.holding: Holding | None = None
        self._hosts_lock = threading.Lock()

    @contextmanager
    def holds(self, kind: str, run_id: str, host: str) -> Iterator[None]:
        """Know during the block that a run may have changed a host."""
        self._held(kind, run_id, lambda hosts: (*hosts, host))
        try:
            yield
        finally:
            self._held(kind, run_id, lambda hosts: tuple(h for h in hosts if h != host))

    def _held(
        self, kind: str, run_id: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]
    ) -> None:
        with self._hosts_lock:
            before = () if self.holding is None else self.holding.hosts
            self.holding = Holding(kind, run_id, change(before))

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
