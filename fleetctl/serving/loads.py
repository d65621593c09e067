"""How many requests the server itself says it runs: proof that a batch was reached.

The same numbers tell whether anybody else asks it, too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

_TIMEOUT_S = 5.0
_LOADS = "/v1/loads?include=all"
_METRICS = "/metrics"
_MOST_BYTES = 2**22
_OK = 200
_LEAST_SAMPLES = 8
_RUNNING = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "tgi_batch_current_size",
)
_WAITING = (
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "llamacpp:requests_deferred",
    "tgi_queue_size",
)
# requests that were served since the server's start
_SERVED = ("vllm:request_success_total", "sglang:num_requests_total", "tgi_request_count")


@dataclass(frozen=True)
class ServerLoad:
    """What the server said of itself during a trial.

    Attributes:
        largest_running: most requests it ran at once; None where it does not say.
        largest_waiting: most requests that waited; None where it does not say.
        samples: answers received.
        busy_running: requests it ran while it was busy: the mean of the larger half of the
            answers, which a slow start and a long end don't thin. None with fewer than 8 answers.
        largest_asked: most requests that it ran and let wait at one moment.
        before: requests it had before the sampler's own trial began; None where it does not say.
        served: requests it finished between the begin and the end; None where it does not say.
    """

    largest_running: int | None
    largest_waiting: int | None
    samples: int
    busy_running: float | None = None
    largest_asked: int | None = None
    before: int | None = None
    served: int | None = None

    def largest_batch(self, most_sent_at_once: int) -> int:
        """Return the largest batch that can have been.

        A few answers may all have missed it: then it is what was sent at once.
        """
        if self.largest_running is not None and self.samples >= _LEAST_SAMPLES:
            return self.largest_running
        return max(self.largest_running or 0, most_sent_at_once)


def strangers(load: ServerLoad, most_at_once: int, sent: int) -> tuple[str, ...]:
    """Return by what the server says that somebody else asked it, too; empty where it does not.

    Args:
        load: what the server said during a trial.
        most_at_once: requests that the trial itself may have in flight.
        sent: requests that the trial itself sent.
    """
    told = []
    if load.before:
        told.append(f"before the trial the server had {count_of(load.before)} already")
    if (load.largest_asked or 0) > most_at_once:
        told.append(
            f"the server had {load.largest_asked} requests at once, and the trial sends at most "
            f"{most_at_once}"
        )
    if (load.served or 0) > sent:
        told.append(f"the server finished {load.served} requests, and the trial sent {sent}")
    return tuple(told)


def count_of(requests: int) -> str:
    """Return a number of requests in words."""
    return f"{requests} request{'' if requests == 1 else 's'}"


class LoadSampler:
    """Ask a server for its load now and then, from a thread of its own; a context manager."""

    def __init__(self, address: tuple[str, int], every_s: float = 0.5) -> None:
        self._address = address
        self._every_s = every_s
        self._ended = threading.Event()
        self._running: list[int] = []
        self._waiting: list[int] = []
        self._before: int | None = None
        self._served: list[int | None] = []
        self._ways = [_ask_loads, _ask_metrics]
        self._thread = threading.Thread(target=self._sample, name="server load", daemon=True)

    def __enter__(self) -> Self:
        """Look at the server as it was found, and begin to sample."""
        self._before = self._ask()
        self._served.append(_ask_served(self._address))
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
        if self._served[0] is not None:
            self._served.append(_ask_served(self._address))

    @property
    def seen(self) -> ServerLoad:
        """What was seen so far."""
        running = sorted(self._running)
        busy = running[len(running) // 2 :] if len(running) >= _LEAST_SAMPLES else []
        return ServerLoad(
            largest_running=max(running, default=None),
            largest_waiting=max(self._waiting, default=None),
            samples=len(running),
            busy_running=sum(busy) / len(busy) if busy else None,
            largest_asked=max(
                map(sum, zip(self._running, self._waiting, strict=False)), default=None
            ),
            before=self._before,
            served=_grown(self._served),
        )

    def _sample(self) -> None:
        while not self._ended.wait(self._every_s):
            self._ask(keep=True)

    def _ask(self, *, keep: bool = False) -> int | None:
        """Return how many requests the server has, running and waiting; None where it won't say."""
        for way in self._ways:
            running, waiting = way(self._address)
            if running is not None:
                self._ways = [way]
                if keep:
                    self._waiting.append(waiting or 0)
                    self._running.append(running)
                return running + (waiting or 0)
        return None


def _grown(counts: list[int | None]) -> int | None:
    """Return by how much a counter grew from first to last; None where it was not told twice.

    One that fell belongs to a server that was started anew.
    """
    if len(counts) < 2 or counts[0] is None or counts[-1] is None or counts[-1] < counts[0]:
        return None
    return counts[-1] - counts[0]


_Counts = tuple[int | None, int | None]


def _ask_loads(address: tuple[str, int]) -> _Counts:
    return read_loads(fetch_json(address, _LOADS))


def _ask_served(address: tuple[str, int]) -> int | None:
    return read_served(fetch(address, _METRICS).decode("utf-8", "replace"))


def _ask_metrics(address: tuple[str, int]) -> _Counts:
    return read_metrics(fetch(address, _METRICS).decode("utf-8", "replace"))


def read_metrics(text: str) -> _Counts:
    """Return running and waiting requests from a Prometheus page, summed over ranks and engines.

    The names are those of vLLM, SGLang, llama.cpp and TGI; None where the page has none of them.
    """
    return _sum_of(text, _RUNNING), _sum_of(text, _WAITING)


def read_served(text: str) -> int | None:
    """Return the requests finished since the server's start, from a Prometheus page."""
    return _sum_of(text, _SERVED)


def _sum_of(text: str, names: tuple[str, ...]) -> int | None:
    """Return the sum over ranks, engines and endings of the first of the names that is there."""
    sums: dict[str, int] = {}
    for line in text.splitlines():
        name, value = re.split(r"[{ ]", line, maxsplit=1)[0], line.rpartition(" ")[2]
        if name in names:
            with contextlib.suppress(ValueError, OverflowError):  # NaN and Inf are no counts
                sums[name] = sums.get(name, 0) + int(float(value))
    return next((sums[name] for name in names if name in sums), None)


def read_loads(answer: object) -> _Counts:
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
    try:
        return json.loads(fetch(address, path))
    except (ValueError, RecursionError):
        return None


def fetch(address: tuple[str, int], path: str) -> bytes:
    """Return a server's answer, 4 MiB of it at most; empty when it gives none."""
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
    except (OSError, ValueError, http.client.HTTPException):
        return b""
    else:
        return body if response.status == _OK else b""
    finally:
        connection.close()
