"""A fake OpenAI-compatible server: real HTTP, and every way of going wrong we have heard of."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from fleetctl.trial.planted import VALUE_PATTERN

MODEL = "fake"


@dataclass
class Behaviour:
    """How the server answers.

    Attributes:
        mode: a name of `_MODES`, or `healthy`.
        from_round: rounds before it are answered healthily.
        delay_s: between two pieces.
    """

    mode: str = "healthy"
    from_round: int = 1
    delay_s: float = 0.0
    first_delay_s: float = 0.02
    model: str = MODEL
    storms: int = 0
    seen: list[dict] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)


def round_of(request: dict) -> int:
    return 1 + sum(message["role"] == "assistant" for message in request["messages"])


def answer(request: dict) -> dict:
    """The right assistant message for a request of the toolcall workload."""
    last = str(request["messages"][-1]["content"])
    values = VALUE_PATTERN.findall(last)
    if "tracking_code" in last:
        return {"content": f"The tracking code is {values[-1]}."}
    if not values or not request.get("tools"):
        return {"content": "Hello, I am here."}
    function = {"name": "lookup_order", "arguments": json.dumps({"order_id": values[-1]})}
    call = {"index": 0, "id": f"call_{round_of(request)}", "type": "function", "function": function}
    return {"tool_calls": [call]}


def pieces(message: dict, model: str = MODEL) -> list[dict]:
    """The message as stream chunks: role, pieces, finish reason, usage."""

    def chunk(delta: dict, finish: str | None = None) -> dict:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "r1", "object": "chat.completion.chunk", "model": model, "choices": [choice]}

    found = [chunk({"role": "assistant", "content": ""})]
    text = message.get("content") or ""
    found += [chunk({"content": text[at : at + 5]}) for at in range(0, len(text), 5)]
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        start = {**call, "function": {**call["function"], "arguments": ""}}
        found.append(chunk({"tool_calls": [start]}))
        for at in range(0, len(arguments), 7):
            piece = {"index": call["index"], "function": {"arguments": arguments[at : at + 7]}}
            found.append(chunk({"tool_calls": [piece]}))
    found.append(chunk({}, "tool_calls" if message.get("tool_calls") else "stop"))
    usage = {"prompt_tokens": 11, "completion_tokens": len(found)}
    return [*found, {"id": "r1", "model": model, "choices": [], "usage": usage}]


class FakeOpenAI:
    """The handlers; what they do is decided by `behaviour`, which a test may change any time."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.is_released = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.behaviour.mode == "unhealthy" else 200)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.behaviour.model}]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = json.loads(body)
        self.behaviour.bodies.append(body)
        self.behaviour.seen.append(asked)
        self.behaviour.tokens.add(request.headers.get("Authorization"))
        await asyncio.sleep(self.behaviour.first_delay_s)
        mode = self.behaviour.mode
        if round_of(asked) < self.behaviour.from_round:
            mode = "healthy"
        handler = getattr(self, f"do_{mode}", None)
        if handler is not None:
            return await handler(request, asked)
        message = _MESSAGES.get(mode, answer)(asked)
        return await self.send(request, asked, message)

    async def send(self, request: web.Request, asked: dict, message: dict) -> web.StreamResponse:
        model = "another" if self.behaviour.mode == "wrong_model" else self.behaviour.model
        if not asked.get("stream"):
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {
                "index": 0,
                "message": {"role": "assistant", **message},
                "finish_reason": finish,
            }
            usage = {"prompt_tokens": len(str(asked)) // 4, "completion_tokens": 5}
            return web.json_response(
                {"id": "r1", "model": model, "choices": [choice], "usage": usage}
            )
        response = await self.begin(request)
        for piece in pieces(message, model):
            await response.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
            await asyncio.sleep(self.behaviour.delay_s)
        await response.write(b"data: [DONE]\n\n")
        return response

    async def begin(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.set_cookie("session", "canary-cookie")
        await response.prepare(request)
        return response

    async def do_untyped(self, request: web.Request, asked: dict) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for piece in pieces(answer(asked)):
            await response.write(b"data: " + json.dumps(piece).encode() + b"\r\n\r\n")
        return response

    async def do_unstreamed(self, request: web.Request, asked: dict) -> web.StreamResponse:
        return await self.send(request, {**asked, "stream": False}, answer(asked))

    async def do_rate_limited(self, *_: object) -> web.Response:
        error = {"error": {"message": "slow down", "code": 429}}
        return web.json_response(error, status=429, headers={"Retry-After": "1"})

    async def do_storm(self, request: web.Request, asked: dict) -> web.StreamResponse:
        """Every third request is too much for it."""
        self.behaviour.storms += 1
        if self.behaviour.storms % 3 == 0:
            return await self.do_rate_limited()
        return await self.send(request, asked, answer(asked))

    async def do_broken(self, *_: object) -> web.Response:
        return web.json_response({"error": {"message": "CUDA error"}}, status=500)

    async def do_bad_request(self, *_: object) -> web.Response:
        return web.json_response({"error": {"message": "no"}}, status=400)

    async def do_killed(self, request: web.Request, asked: dict) -> web.StreamResponse:
        response = await self.begin(request)
        for piece in pieces(answer(asked))[:3]:
            await response.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
        request.transport.abort()
        return response

    async def do_torn(self, request: web.Request, asked: dict) -> web.StreamResponse:
        response = await self.begin(request)
        text = b"".join(b"data: " + json.dumps(p).encode() + b"\n\n" for p in pieces(answer(asked)))
        await response.write(text[: len(text) // 2])
        return response

    async def do_hang_up(self, request: web.Request, _: dict) -> web.StreamResponse:
        request.transport.abort()
        return web.Response()

    async def do_error_event(self, request: web.Request, asked: dict) -> web.StreamResponse:
        response = await self.begin(request)
        for piece in pieces(answer(asked))[:2]:
            await response.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
        error = {"error": {"message": "engine died", "code": 500}}
        await response.write(b"data: " + json.dumps(error).encode() + b"\n\n")
        return response

    async def do_not_json(self, request: web.Request, _: dict) -> web.StreamResponse:
        response = await self.begin(request)
        await response.write(b"data: {not json}\n\ndata: [DONE]\n\n")
        return response

    async def do_gigabyte(self, request: web.Request, _: dict) -> web.StreamResponse:
        response = await self.begin(request)
        piece = pieces({"content": "x" * 4000})[1]
        piece["choices"][0]["delta"]["content"] = "x" * 4000
        block = (b"data: " + json.dumps(piece).encode() + b"\n\n") * 16
        for _ in range(2**30 // len(block)):
            await response.write(block)
        return response

    async def do_gigabyte_line(self, request: web.Request, _: dict) -> web.StreamResponse:
        response = await self.begin(request)
        await response.write(b"data: ")
        for _ in range(2**30 // 2**16):
            await response.write(b"x" * 2**16)
        return response

    async def do_silent(self, request: web.Request, _: dict) -> web.StreamResponse:
        response = await self.begin(request)
        await asyncio.sleep(30)
        return response

    async def do_drip(self, request: web.Request, asked: dict) -> web.StreamResponse:
        """Bytes keep coming, but no event ever ends."""
        response = await self.begin(request)
        for byte in b"data: " + json.dumps(pieces(answer(asked))[0]).encode() * 9:
            await response.write(bytes([byte]))
            await asyncio.sleep(0.02)
        return response

    async def do_stall(self, request: web.Request, _: dict) -> web.StreamResponse:
        response = await self.begin(request)
        piece = pieces({"content": "Hello"})[1]
        await response.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
        await asyncio.sleep(30)
        return response

    async def do_endless(self, request: web.Request, _: dict) -> web.StreamResponse:
        response = await self.begin(request)
        piece = pieces({"content": "Hello"})[1]
        while True:
            await response.write(b"data: " + json.dumps(piece).encode() + b"\n\n")
            await asyncio.sleep(0.02)


def _wrong_value(asked: dict) -> dict:
    message = answer(asked)
    text = json.dumps(message)
    for value in VALUE_PATTERN.findall(text):
        text = text.replace(value, "ZZ-0000-Z")
    return json.loads(text)


_MESSAGES: dict[str, Callable[[dict], dict]] = {
    "leaky": lambda asked: {"content": "<|DSML|tool_calls>" + str(answer(asked))},
    "refusing": lambda _: {"content": "I would rather not look that up."},
    "empty": lambda _: {"content": ""},
    "wrong_value": _wrong_value,
}


@contextmanager
def running(app: web.Application) -> Iterator[int]:
    """Serve an application from a thread; yields its port."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    port = 0

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        return site._server.sockets[0].getsockname()[1]

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield port
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass
class Running:
    """A running fake server."""

    url: str
    port: int
    behaviour: Behaviour


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Start a fake server with a behaviour; it ends with the test."""
    open_servers = []

    def start(**how: object) -> Running:
        behaviour = Behaviour(**how)
        context = running(FakeOpenAI(behaviour).app())
        port = context.__enter__()
        open_servers.append(context)
        return Running(f"http://127.0.0.1:{port}", port, behaviour)

    yield start
    for context in reversed(open_servers):
        context.__exit__(None, None, None)
