"""Talk on stderr: calm on a terminal, whole lines elsewhere; data never goes through here."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TextIO

from fleetctl.cli.typed import as_here

_EVERY_S = 5.0


class Console:
    """Where a workflow says what it is doing.

    On a terminal a topic's progress is one line that is rewritten; elsewhere it is a line every
    few seconds, so that logs stay readable. Safe to use from several threads. That nobody listens
    any more - a closed pipe, a terminal that went away - never ends a run.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream is not None and self._stream.isatty()
        # a signal handler talks, too, and may interrupt a talk of its own thread
        self._lock = threading.RLock()
        self._shown = ""
        self._last_s: dict[str, float] = {}

    def say(self, line: str) -> None:
        """Say a line that stays."""
        with self._lock:
            self._wipe()
            self._print(as_here(line), "\n")

    def progress(self, topic: str, line: str) -> None:
        """Say how a long wait goes on."""
        with self._lock:
            if self._live:
                self._wipe()
                self._shown = f"  {topic}: {line}"[:110]
                self._print(self._shown)
            elif time.monotonic() - self._last_s.get(topic, float("-inf")) >= _EVERY_S:
                self._last_s[topic] = time.monotonic()
                self._print(f"  {topic}: {line}", "\n")

    def _wipe(self) -> None:
        if self._shown:
            self._print("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _print(self, text: str, end: str = "") -> None:
        # ValueError: the stream was closed; RuntimeError: a signal handler talks inside a write
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            print(text, end=end, file=self._stream, flush=True)
