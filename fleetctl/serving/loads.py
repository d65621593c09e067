"""How many requests the server itself says it runs: proof that a batch was reached."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

_TIMEOUT_S = 5.0
_PATH = "/v1/loads?include=all"


@dataclass(frozen=True)
class ServerLoad:
    """What the server said of itself during a trial.

    Attributes:
        largest_running: most requests it ran at once; None where it does not say.
        largest_waiting: most requests that waited; None where it does not say.
        samples: answers received.
    """

    largest_running: int | None
    largest_waiting: int | None
    samples: int


class LoadSampler:
    """Ask a server for its load now and then, from a thread of its own; a context manager."""

    def __init__(self, address: tuple[str, int], every_s: float = 0.5) -> None:
        self._address = address
        self._every_s = every_s
        self._ended = threading.Event()
        self._running: list[int] = []
        self._waiting: list[int] = []
        self._thread = threading.Thread(target=self._sample, name="server load", daemon=True)

    def __enter__(self) -> Self:
        """Begin to sample."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop sampling."""
        self._ended.set()
        self._thread.join(timeout=2 * _TIMEOUT_S)

    @property
    def seen(self) -> ServerLoad:
        """What was seen so far."""
        return ServerLoad(
            max(self._running, default=None), max(self._waiting, default=None), len(self._running)
        )

    def _sample(self) -> None:
        while not self._ended.wait(self._every_s):
            answer = fetch_json(self._address, _PATH)
            if answer is None:
                continue
            running, waiting = read_loads(answer)
            if running is not None:
                self._running.append(running)
                self._waiting.append(waiting or 0)


def read_loads(answer: object) -> tuple[int | None, int | None]:
    """Return running and waiting requests from SGLang's answer, summed over its ranks."""
    ranks = answer.get("loads", [answer]) if isinstance(answer, dict) else answer
    found = [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []
    running = [_count(rank, ("num_running_reqs", "running")) for rank in found]
    waiting = [_count(rank, ("num_waiting_reqs", "waiting")) for rank in found]
    known = [count for count in running if count is not None]
    return (sum(known) if known else None, sum(count or 0 for count in waiting) if known else None)


def _count(rank: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(rank[name]) for name in names if isinstance(rank.get(name), int)), None)


def fetch_json(address: tuple[str, int], path: str) -> object:
    """Return a server's JSON answer, or None when it gives none."""
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        return json.loads(body) if response.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
