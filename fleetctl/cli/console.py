"""Talk on stderr: calm on a terminal, whole lines elsewhere; data never goes through here."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

_EVERY_S = 5.0


class Console:
    """Where a workflow says what it is doing.

    On a terminal a topic's progress is one line that is rewritten; elsewhere it is a line every
    few seconds, so that logs stay readable. Safe to use from several threads.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._lock = threading.Lock()
        self._shown = ""
        self._last_s: dict[str, float] = {}

    def say(self, line: str) -> None:
        """Say a line that stays."""
        with self._lock:
            self._wipe()
            print(line, file=self._stream, flush=True)

    def progress(self, topic: str, line: str) -> None:
        """Say how a long wait goes on."""
        with self._lock:
            if self._live:
                self._wipe()
                self._shown = f"  {topic}: {line}"[:110]
                print(self._shown, end="", file=self._stream, flush=True)
            elif time.monotonic() - self._last_s.get(topic, float("-inf")) >= _EVERY_S:
                self._last_s[topic] = time.monotonic()
                print(f"  {topic}: {line}", file=self._stream, flush=True)

    def _wipe(self) -> None:
        if self._shown:
            print("\r" + " " * len(self._shown) + "\r", end="", file=self._stream)
            self._shown = ""
