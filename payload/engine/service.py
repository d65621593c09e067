"""Between HTTP and the engine's thread: the state of the service, and tokens on their way."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from payload.engine.assemble import Assembly
from payload.engine.engine import Ticket
from payload.engine.request import BadRequestError, ChatRequest
from payload.engine.sequence import Ending

Token = tuple[int, Ending | None]
DONE_POLL_S = 0.02


class Courier:
    """Hands what one thread posts to queues of the event loop, many at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[asyncio.Queue[Token], Token]] = deque()
        self._lock = threading.Lock()
        self._is_scheduled = False

    def post(self, queue: asyncio.Queue[Token], token: Token) -> None:
        """Deliver a token soon; may be called from any thread."""
        with self._lock:
            self._posted.append((queue, token))
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, deque()
            self._is_scheduled = False
        for queue, token in posted:
            queue.put_nowait(token)


@dataclass
class Stream:
    """A reply on its way.

    Attributes:
        ticket: the engine's receipt.
        queue: tokens as they come.
    """

    ticket: Ticket
    queue: asyncio.Queue[Token]

    async def tokens(self) -> AsyncIterator[Token]:
        """Yield the reply's tokens; the last one has an ending."""
        while True:
            token = await self.queue.get()
            yield token
            if token[1] is not None:
                return


class Service:
    """The engine's thread, and who waits for it."""

    def __init__(self, assembly: Assembly, log: logging.Logger) -> None:
        self.assembly = assembly
        self._log = log
        self._courier: Courier | None = None
        self._open: dict[int, asyncio.Queue[Token]] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._on_failure: Callable[[], None] | None = None
        self.is_draining = False
        self.has_failed = False

    @property
    def is_up(self) -> bool:
        """Whether new requests are taken."""
        return self._thread.is_alive() and not self.is_draining and not self.has_failed

    @property
    def in_flight(self) -> int:
        """Replies that have not ended."""
        return len(self._open)

    def start(self, on_failure: Callable[[], None]) -> None:
        """Start the engine's thread; called on the event loop."""
        self._courier = Courier(asyncio.get_running_loop())
        self._on_failure = on_failure
        self._thread.start()

    def open(self, request: ChatRequest) -> Stream:
        """Queue a request.

        Raises:
            BadRequestError: the conversation does not fit, or the service takes nothing new.
            RuntimeError: the service has not been started.
        """
        if not self.is_up:
            raise BadRequestError("the server is draining", status=503, code="draining")
        courier = self._courier
        if courier is None:
            raise RuntimeError("the service has not been started")
        queue: asyncio.Queue[Token] = asyncio.Queue()

        def deliver(token: int, ending: Ending | None) -> None:
            courier.post(queue, (token, ending))

        ticket = self.assembly.engine.submit(request, deliver)
        self._open[ticket.sequence.number] = queue
        if self.has_failed:  # meanwhile, and told only those that were there
            courier.post(queue, (0, Ending.ABORT))
        return Stream(ticket, queue)

    def close(self, stream: Stream) -> None:
        """Forget a reply; one that has not ended is cancelled, so that its row is free."""
        self._open.pop(stream.ticket.sequence.number, None)
        if stream.ticket.sequence.ending is None:
            self.assembly.engine.cancel(stream.ticket)

    async def drain(self, deadline_s: float) -> None:
        """Take nothing new and wait for what runs, at most until the deadline."""
        self.is_draining = True
        self._log.info("draining: %d in flight", self.in_flight)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + deadline_s
        while self.in_flight and loop.time() < until_s:
            await asyncio.sleep(DONE_POLL_S)
        self._log.info("drained: %d left", self.in_flight)

    def stop(self) -> None:
        """Stop the engine's thread and the device."""
        self.assembly.engine.close()
        if self._thread.is_alive():
            self._thread.join()
        self.assembly.device.close()

    def _run(self) -> None:
        try:
            self.assembly.engine.serve()
        except Exception:  # noqa: BLE001 - whatever it was, nobody may be left waiting
            self._log.exception("the engine failed")
            self.has_failed = True
            if self._courier is not None:
                for queue in list(self._open.values()):
                    self._courier.post(queue, (0, Ending.ABORT))
            if self._on_failure is not None:
                self._on_failure()
