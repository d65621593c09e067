"""One chat completion over HTTP, recorded event by event.

Built for many streams in one event loop: each event is read once, when it comes, so that many
streams that end together leave no pile of work behind. Whatever a server does ends in an
`Exchange`, never in an exception, and never in more than the session's share of memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from fleetctl.serving.target import Target
from fleetctl.trial.events import Ended, Exchange, SseEvent
from fleetctl.trial.reply import Reply, ReplyBuilder, assemble
from fleetctl.trial.sse import BYTE_ORDER_MARK, SseParser
from fleetctl.trial.workload import Limits

SESSION_BYTES = 8 * 2**20
READ_BUFFER_BYTES = 2**18  # a small one collapses throughput on long replies
EVENT_OVERHEAD_BYTES = 120  # what Python needs beside an event's text
STALL_SLACK_S = 0.25  # the stall timer is moved at most this often; moving it per event costs CPU
HTTP_OK = 200
_STREAM_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


@dataclass
class ByteBudget:
    """Bytes that the replies of one session may still take."""

    left: int = SESSION_BYTES


@dataclass(frozen=True)
class Due:
    """A request to be made.

    Attributes:
        round: 1 for the first of its session.
        body: its exact bytes.
        is_stream: the body asks for a stream; else the first-token limit means nothing.
        intended_at_s: when it is due, in seconds since the barrier.
        barrier_s: the barrier on the event loop's clock.
    """

    round: int
    body: bytes
    is_stream: bool
    intended_at_s: float
    barrier_s: float


class StreamClient:
    """Chat completions of one server; use as an async context manager.

    Each request has a connection of its own: a reply can't be lost to the race between a
    kept-alive connection and a server that closes it.
    """

    def __init__(self, target: Target, limits: Limits) -> None:
        self._target = target
        self._limits = limits
        self._is_aborting = False
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> StreamClient:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect_s),
            headers=self._target.headers,
            read_bufsize=READ_BUFFER_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    @property
    def is_aborting(self) -> bool:
        """Whether a cancelled exchange ends as ABORTED instead of raising."""
        return self._is_aborting

    def abort(self) -> None:
        """From now on a cancelled exchange ends as ABORTED instead of raising."""
        self._is_aborting = True

    async def exchange(self, due: Due, budget: ByteBudget) -> tuple[Exchange, Reply]:
        """Make one request and record all that comes back, until it ends or a limit passes.

        Returns:
            the record, and the message that it adds up to (what `assemble` makes of it).
        """
        loop = asyncio.get_running_loop()
        reading = _Reading(self._limits, budget, loop.time, is_stream=due.is_stream)
        ended, detail = await self._read(due, reading)
        reading.finish(ended)
        exchange = Exchange(
            round=due.round,
            request=due.body.decode(),
            intended_at_s=due.intended_at_s,
            sent_at_s=reading.sent_s - due.barrier_s,
            finished_at_s=loop.time() - reading.sent_s,
            ended=ended,
            status=reading.status,
            headers=reading.headers,
            events=tuple(reading.events),
            body=_text(b"".join(reading.body)),
            tail=_text(reading.tail),
            first_token_at_s=reading.first_token_at_s,
            received_bytes=reading.received_bytes,
            detail=detail,
        )
        return exchange, reading.builder.reply() if reading.events else assemble(exchange)

    async def _read(self, due: Due, reading: _Reading) -> tuple[Ended, str]:
        """Run the request under its limits and say how it ended."""
        try:
            async with asyncio.timeout_at(reading.deadline_s) as timer:
                reading.timer = timer
                await self._request(due, reading)
        except TimeoutError as error:
            # aiohttp's own time-outs (connecting) are TimeoutErrors, too
            if isinstance(error, aiohttp.ClientError):
                return Ended.CONNECT_FAILED, _describe(error)
            return reading.expires_as, f"{reading.expires_as} limit passed"
        except aiohttp.ClientConnectorError as error:
            return Ended.CONNECT_FAILED, _describe(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Ended.CUT, _describe(error)
        except asyncio.CancelledError:
            if not self._is_aborting:
                raise
            return Ended.ABORTED, "the client stopped"
        return (Ended.TOO_LARGE, "") if reading.is_too_large else (Ended.COMPLETE, "")

    async def _request(self, due: Due, reading: _Reading) -> None:
        if self._http is None:
            raise RuntimeError("StreamClient is used outside `async with`")
        async with self._http.post(self._target.chat_url, data=due.body) as response:
            reading.take_head(response)
            # readany() hands over whatever has arrived, without copying it to lines first
            while chunk := await response.content.readany():
                reading.take(chunk)
                if reading.is_too_large:
                    response.close()
                    return


class _Reading:
    """What one response has brought so far, and how much patience is left."""

    def __init__(
        self, limits: Limits, budget: ByteBudget, now_s: Callable[[], float], *, is_stream: bool
    ) -> None:
        self._limits = limits
        self._budget = budget
        self._now_s = now_s
        self._parser: SseParser | None = None
        self._is_typed = False
        self._is_undecided = True
        self._head = b""  # what came before it was told what the response is
        self._stall_set_s = 0.0
        self.sent_s = now_s()
        self.timer: asyncio.Timeout | None = None
        waits_for_token = is_stream and limits.ttft_s <= limits.total_s
        self.deadline_s = self.sent_s + (limits.ttft_s if waits_for_token else limits.total_s)
        self.expires_as = Ended.TTFT if waits_for_token else Ended.TOTAL
        self.status: int | None = None
        self.headers: tuple[tuple[str, str], ...] = ()
        self.events: list[SseEvent] = []
        self.builder = ReplyBuilder()
        self.body: list[bytes] = []
        self.tail = b""
        self.first_token_at_s: float | None = None
        self.received_bytes = 0
        self.is_too_large = False

    def take_head(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = tuple(
            (name.lower(), value)
            for name, value in response.headers.items()
            if name.lower() != "set-cookie"
        )
        self._is_typed = "event-stream" in response.headers.get("Content-Type", "")

    def take(self, chunk: bytes) -> None:
        now_s = self._now_s()
        self.received_bytes += len(chunk)
        self._budget.left -= len(chunk)
        if self._is_undecided:
            chunk = self._decide(chunk)
        if self._parser is not None:
            self._take_events(self._parser.feed(chunk), now_s)
        elif chunk:
            self.body.append(chunk)
        self.is_too_large = self._budget.left < 0

    def _decide(self, chunk: bytes) -> bytes:
        """Tell a stream from a body by its first bytes, and return what can be taken now.

        Content types lie both ways: streams come as plain text, errors as an event stream.
        """
        self._head += chunk
        start = self._head.removeprefix(BYTE_ORDER_MARK).lstrip()
        may_be_stream = any(s.startswith(start) for s in (*_STREAM_STARTS, BYTE_ORDER_MARK))
        is_stream = start.startswith(_STREAM_STARTS) or (self._is_typed and start[:1] != b"{")
        if may_be_stream and not start.startswith(_STREAM_STARTS):
            return b""
        self._is_undecided = False
        if is_stream and (self._is_typed or self.status == HTTP_OK):
            self._parser = SseParser()
        head, self._head = self._head, b""
        return head

    def finish(self, ended: Ended) -> None:
        if self._head:  # it ended before it could be told what it is
            self.body.append(self._head)
        if self._parser is not None:
            late, self.tail = self._parser.finish()
            self._take_events(late, self._now_s())
            if self.tail.strip() and ended is Ended.COMPLETE:
                self.builder.malformed += 1
        elif ended is Ended.COMPLETE and self.body and self.status == HTTP_OK:
            self.first_token_at_s = self._now_s() - self.sent_s

    def _take_events(self, arrived: list[bytes], now_s: float) -> None:
        if not arrived:
            return
        at_s = now_s - self.sent_s
        self._budget.left -= EVENT_OVERHEAD_BYTES * len(arrived)
        for text in map(_text, arrived):
            self.events.append(SseEvent(at_s, text))
            self.builder.take(text)
        if self.first_token_at_s is None and self.builder.has_token:
            self.first_token_at_s = at_s
        if self.first_token_at_s is not None and now_s - self._stall_set_s > STALL_SLACK_S:
            self._be_patient(now_s)

    def _be_patient(self, now_s: float) -> None:
        """Move the deadline: after the first token, silence and total time are limited."""
        self._stall_set_s = now_s
        stall_s = now_s + self._limits.stall_s + STALL_SLACK_S
        total_s = self.sent_s + self._limits.total_s
        self.expires_as = Ended.STALL if stall_s <= total_s else Ended.TOTAL
        if self.timer is not None and not self.timer.expired():
            self.timer.reschedule(min(stall_s, total_s))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
