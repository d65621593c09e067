"""The OpenAI-compatible HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from payload.engine import strict_json
from payload.engine.info import server_info
from payload.engine.reply import Delta, Envelope, ReplyBuilder, pieces_of, usage_of
from payload.engine.request import BadRequestError, ChatRequest, check_model, parse_request
from payload.engine.sequence import Ending
from payload.engine.service import Service, Stream

HEALTH_TIMEOUT_S = 20.0
MAX_BODY_BYTES = 16 << 20
CLIENT_GONE = 499


@dataclass(frozen=True)
class Served:
    """What the API says about itself.

    Attributes:
        name: the served model's name.
        path: what the model was started from.
        command: the process's command line.
        environ: its environment.
    """

    name: str
    path: str
    command: tuple[str, ...]
    environ: Mapping[str, str]


class Api:
    """The routes."""

    def __init__(self, service: Service, served: Served) -> None:
        self._service = service
        self._served = served
        self._created_s = int(time.time())

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [
            Route("/health", self.health),
            Route("/health_generate", self.health_generate),
            Route("/ready", self.health),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/loads", self.loads),
            Route("/server_info", self.info),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def health(self, _request: Request) -> Response:
        """Answer 200 while requests are taken, 503 while draining or after a failure."""
        return Response(status_code=200 if self._service.is_up else 503)

    async def health_generate(self, _request: Request) -> Response:
        """Answer 200 once a token has really been generated."""
        if not self._service.is_up:
            return Response(status_code=503)
        probe = {"messages": [{"role": "user", "content": "health"}], "max_tokens": 1}
        stream = self._service.open(parse_request(probe, model=self._served.name))
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                ending = [ending async for _, ending in stream.tokens()][-1]
        except TimeoutError:
            return Response(status_code=503)
        finally:
            self._service.close(stream)
        return Response(status_code=503 if ending is Ending.ABORT else 200)

    async def models(self, _request: Request) -> Response:
        """List the one model."""
        return JSONResponse({"object": "list", "data": [self._entry()]})

    async def model(self, http: Request) -> Response:
        """Describe the one model, if that is the one asked for."""
        try:
            check_model(http.path_params["name"], self._served.name)
        except BadRequestError as error:
            return _refusal(error)
        return JSONResponse(self._entry())

    def _entry(self) -> dict[str, Any]:
        return {
            "id": self._served.name,
            "object": "model",
            "created": self._created_s,
            "owned_by": "payload",
            "max_model_len": self._service.assembly.config.context_tokens,
        }

    async def loads(self, _request: Request) -> Response:
        """Say how busy the engine is."""
        loads = self._service.assembly.engine.loads()
        rank = {
            "dp_rank": 0,
            "num_running_reqs": loads.running,
            "num_waiting_reqs": loads.waiting,
            "free_pages": loads.free_pages,
        }
        return JSONResponse(
            {
                "running": loads.running,
                "waiting": loads.waiting,
                "steps": loads.steps,
                "tokens": loads.tokens,
                "loads": [rank],
            }
        )

    async def info(self, _request: Request) -> Response:
        """Say what runs: flags, versions, buckets, and the slots' sources by hash."""
        served = self._served
        about = {
            "served_model_name": served.name,
            "model_path": served.path,
            "launch_command": list(served.command),
            "max_body_bytes": MAX_BODY_BYTES,
        }
        found = {**about, **server_info(self._service.assembly, served.environ)}
        # Escaped: an argument or a variable may hold bytes that are no text.
        return Response(json.dumps(found), media_type="application/json")

    async def chat(self, http: Request) -> Response:
        """Answer a chat completion, streamed or whole."""
        try:
            request = parse_request(await _json(http), model=self._served.name)
            stream = self._service.open(request)
        except BadRequestError as error:
            return _refusal(error)
        except ClientDisconnect:  # in the middle of its request: nobody reads an answer
            return Response(status_code=CLIENT_GONE)
        envelope = Envelope(f"chatcmpl-{uuid.uuid4().hex}", self._served.name, int(time.time()))
        builder = ReplyBuilder(request, self._service.assembly.engine.tokenizer)
        if request.stream:
            events = self._events(request, stream, builder, envelope)
            return StreamingResponse(events, media_type="text/event-stream")
        return await self._whole(http, stream, builder, envelope)

    async def _events(
        self, request: ChatRequest, stream: Stream, builder: ReplyBuilder, envelope: Envelope
    ) -> AsyncIterator[bytes]:
        try:
            yield _event(envelope.chunk({"role": "assistant", "content": ""}))
            ending = Ending.ABORT
            async for token, ended in stream.tokens():
                found, ending = _advance(builder, token, ended)
                for piece in (piece for delta in found for piece in pieces_of(delta)):
                    yield _event(envelope.chunk(piece))
                if builder.is_stopped:
                    break
            if ending is Ending.ABORT and not builder.is_stopped:
                yield _event({"error": {"message": "the engine failed", "type": "server_error"}})
                return
            yield _event(envelope.chunk({}, builder.finish_reason(ending)))
            if request.include_usage:
                yield _event(envelope.usage_chunk(_usage(stream, builder)))
            yield b"data: [DONE]\n\n"
        finally:
            self._service.close(stream)

    async def _whole(
        self, http: Request, stream: Stream, builder: ReplyBuilder, envelope: Envelope
    ) -> Response:
        gone = asyncio.ensure_future(_disconnected(http))
        reply = asyncio.ensure_future(_collect(stream, builder))
        try:
            await asyncio.wait((gone, reply), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                return Response(status_code=CLIENT_GONE)
            deltas, ending = reply.result()
            if ending is Ending.ABORT and not builder.is_stopped:
                failure = BadRequestError("the engine failed", status=500, code="engine_failed")
                return _refusal(failure)
            reason = builder.finish_reason(ending)
            return JSONResponse(envelope.completion(deltas, reason, _usage(stream, builder)))
        finally:
            for task in (gone, reply):
                task.cancel()
            self._service.close(stream)


async def _collect(stream: Stream, builder: ReplyBuilder) -> tuple[list[Delta], Ending]:
    deltas: list[Delta] = []
    ending = Ending.ABORT
    async for token, ended in stream.tokens():
        found, ending = _advance(builder, token, ended)
        deltas += found
        if builder.is_stopped:
            break
    return deltas, ending


def _advance(builder: ReplyBuilder, token: int, ended: Ending | None) -> tuple[list[Delta], Ending]:
    if ended is Ending.ABORT:
        return [], ended
    found = builder.push(token)
    if ended is not None or builder.is_stopped:
        found += builder.finish()
    return found, ended or Ending.STOP


def _usage(stream: Stream, builder: ReplyBuilder) -> dict[str, Any]:
    ticket = stream.ticket
    return usage_of(ticket.prompt_tokens, ticket.program_tokens, builder.completion_tokens)


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _refusal(error: BadRequestError) -> Response:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    body = {"message": str(error), "type": kind, "param": None, "code": error.code}
    return JSONResponse({"error": body}, status_code=error.status)


async def _json(http: Request) -> object:
    """Read the body, but not one without end."""
    parts = bytearray()
    async for part in http.stream():
        parts += part
        if len(parts) > MAX_BODY_BYTES:
            raise BadRequestError("the body is too large", status=413, code="too_large")
    try:
        return strict_json.read(parts)
    except ValueError as error:
        raise BadRequestError(f"the body is no JSON: {error}", code="invalid_json") from error


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def application(service: Service, served: Served, on_failure: Callable[[], None]) -> Starlette:
    """Return the ASGI application; the engine's thread runs as long as it does."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service.start(on_failure)
        yield
        service.stop()

    return Starlette(routes=Api(service, served).routes(), lifespan=lifespan)
