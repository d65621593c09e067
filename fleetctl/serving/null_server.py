"""A server that answers right at once and costs little: what remains is the client's own limit.

It streams paced pieces and makes the tool calls of `trial/scenario.py`, so a trial against it is
clean by construction, and whatever a self-test finds is about this machine.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from fleetctl.trial.planted import VALUE_PATTERN
from fleetctl.trial.scenario import ARGUMENT, TOOL

SLOTS = 10  # streams write in turn within a period, as those of a real server do
START_PATIENCE_S = 20.0
MODEL = "null"
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


@dataclass(frozen=True)
class Pace:
    """How the server streams.

    Attributes:
        tokens: pieces of filler before each answer.
        tokens_per_s: pieces per second and stream.
    """

    tokens: int
    tokens_per_s: float


@contextmanager
def null_server(pace: Pace) -> Iterator[str]:
    """Run the server in a process of its own; yields its address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_process, args=(pace, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_PATIENCE_S):
            raise RuntimeError("the null server did not start")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        ours.close()
        process.join(2)
        process.kill()
        process.join()


def _serve_process(pace: Pace, connection: Connection) -> None:
    asyncio.run(_serve(pace, connection))


async def _serve(pace: Pace, connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    wheel = _Wheel(pace)
    server = await loop.create_server(lambda: _Stream(wheel), "127.0.0.1", 0, backlog=4096)
    connection.send(server.sockets[0].getsockname()[1])
    parent_left = asyncio.Event()
    # the parent says nothing more: this end becomes readable when the parent closes or dies
    loop.add_reader(connection.fileno(), parent_left.set)
    turning = asyncio.create_task(wheel.turn())
    await parent_left.wait()
    turning.cancel()
    server.close()


class _Wheel:
    """Gives each stream its turn, `tokens_per_s` times a second."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._slots: list[set[_Stream]] = [set() for _ in range(SLOTS)]
        self._next = 0

    def add(self, stream: _Stream) -> None:
        self._next += 1
        self._slots[self._next % SLOTS].add(stream)

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            for slot in self._slots:
                for stream in list(slot):
                    if not stream.write_next():
                        slot.discard(stream)
                due_s += 1 / self.pace.tokens_per_s / SLOTS
                await asyncio.sleep(max(0.0, due_s - loop.time()))


class _Stream(asyncio.Protocol):
    """One connection: a request, then a streamed answer."""

    def __init__(self, wheel: _Wheel) -> None:
        self._wheel = wheel
        self._received = b""
        self._pieces: Iterator[bytes] = iter(())
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None or len(body) < int(length[1]) or self._transport is None:
            return
        self._received = b""
        self._pieces = _pieces(body, self._wheel.pace.tokens)
        self._transport.write(_HEAD)
        self._wheel.add(self)

    def write_next(self) -> bool:
        """Write one piece; False when there is nothing more to write."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        piece = next(self._pieces, None)
        if piece is None:
            transport.write(b"0\r\n\r\n")
            transport.close()
            return False
        transport.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        return True


def _pieces(body: bytes, tokens: int) -> Iterator[bytes]:
    """Yield the events of an answer: filler as reasoning, then the call or the text."""
    request = json.loads(body)
    for index in range(tokens):
        yield _event({"reasoning_content": f"{index} "})
    last = str(request["messages"][-1]["content"])
    values = VALUE_PATTERN.findall(last)
    if "tracking_code" in last:
        yield _event({"content": f"The tracking code is {values[-1]}."})
        yield _event({}, finish_reason="stop")
    else:
        arguments = json.dumps({ARGUMENT: values[-1]})
        function = {"name": TOOL, "arguments": arguments}
        call = {"index": 0, "id": "call_0", "type": "function", "function": function}
        yield _event({"tool_calls": [call]})
        yield _event({}, finish_reason="tool_calls")
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": tokens + 1}
    yield _data({"model": MODEL, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _data(
        {"id": "null", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}
    )


def _data(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
