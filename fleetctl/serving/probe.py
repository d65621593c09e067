"""Single questions to a service, each with an honest answer: answered, unreachable, unknown."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from fleetctl.clock import Clock
from fleetctl.errors import HostError
from fleetctl.serving.target import Target

MOST_BYTES = 2**20
_TUNNEL_PATIENCE_S = 0.2  # a tunnel accepts first and closes when the far port refuses
# whether told by the host itself or by the tunnel, which can only end our connection
NOTHING_LISTENS = "nothing listens on the port"


@dataclass(frozen=True)
class Answered:
    """The service answered, well or badly.

    Attributes:
        status: HTTP status.
        body: at most `MOST_BYTES` of it.
    """

    status: int
    body: bytes = b""


@dataclass(frozen=True)
class Unreachable:
    """The host refused, or what listens there gave no HTTP answer in time."""

    why: str


@dataclass(frozen=True)
class Unknown:
    """The question never got there; this says nothing about the service."""

    why: str


Answer = Answered | Unreachable | Unknown


class HttpProbe(Protocol):
    """What readiness asks of a service."""

    def port(self, *, deadline_s: float) -> Answer:
        """Tell whether something listens (`Answered(0)`)."""
        ...

    def get(self, path: str, *, deadline_s: float) -> Answer:
        """Ask for a path."""
        ...

    def chat(self, body: bytes, *, deadline_s: float) -> Answer:
        """Ask for a chat completion."""
        ...


class TargetProbe:
    """An `HttpProbe` over the network; safe to use from several threads.

    Args:
        target: the server, or the local end of a tunnel to it.
        clock: for deadlines over a whole answer, however slowly it drips.
        check_way: raises HostError when the way to the host is broken; called after a failure,
            so that a broken tunnel counts as unknown and not as a refusal.
    """

    def __init__(
        self, target: Target, clock: Clock, check_way: Callable[[], None] = lambda: None
    ) -> None:
        self._target = target
        self._clock = clock
        self._check_way = check_way
        parts = urlsplit(target.url)
        self._is_tls = parts.scheme == "https"
        self._address = (parts.hostname or "", parts.port or (443 if self._is_tls else 80))
        self._base_path = parts.path.rstrip("/").removesuffix("/v1")

    def port(self, *, deadline_s: float) -> Answer:
        """Tell whether something listens, also at the far end of a tunnel."""
        try:
            with socket.create_connection(self._address, timeout=deadline_s) as connection:
                connection.settimeout(min(_TUNNEL_PATIENCE_S, deadline_s))
                with contextlib.suppress(TimeoutError):
                    if connection.recv(1, socket.MSG_PEEK) == b"":
                        return self._failed(NOTHING_LISTENS)
        except (ConnectionRefusedError, ConnectionResetError):
            return self._failed(NOTHING_LISTENS)
        except OSError as error:
            return self._failed(error.strerror or str(error))
        return Answered(0)

    def get(self, path: str, *, deadline_s: float) -> Answer:
        """Ask for a path below the server's root."""
        return self._ask("GET", self._base_path + path, None, deadline_s)

    def chat(self, body: bytes, *, deadline_s: float) -> Answer:
        """Ask for a chat completion."""
        return self._ask("POST", urlsplit(self._target.chat_url).path, body, deadline_s)

    def _ask(self, method: str, path: str, body: bytes | None, deadline_s: float) -> Answer:
        until_s = self._clock.monotonic_s() + deadline_s
        connection = self._connection(deadline_s)
        try:
            headers = {**self._target.headers, "Connection": "close"}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return Answered(response.status, self._body(connection, response, until_s))
        except TimeoutError:
            return self._failed(f"no answer to {method} {path} within {deadline_s:g} s")
        except (OSError, http.client.HTTPException) as error:
            return self._failed(f"{method} {path}: {type(error).__name__} {error}".strip())
        finally:
            connection.close()

    def _connection(self, deadline_s: float) -> http.client.HTTPConnection:
        host, port = self._address
        if self._is_tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=deadline_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=deadline_s)

    def _body(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        until_s: float,
    ) -> bytes:
        body = b""
        while len(body) < MOST_BYTES:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left_s)
            piece = response.read1(2**16)
            if not piece:
                break
            body += piece
        return body[:MOST_BYTES]

    def _failed(self, why: str) -> Answer:
        try:
            self._check_way()
        except HostError as error:
            return Unknown(str(error))
        return Unreachable(why)


def json_of(answer: Answered) -> Mapping[str, Any]:
    """Return an answer's JSON object, or an empty one."""
    try:
        value = json.loads(answer.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def list_models(probe: HttpProbe, *, deadline_s: float = 10.0) -> tuple[str, ...]:
    """Return the names of the served models; empty when the server doesn't say."""
    answer = probe.get("/v1/models", deadline_s=deadline_s)
    if not isinstance(answer, Answered) or answer.status != 200:
        return ()
    models = json_of(answer).get("data")
    entries = models if isinstance(models, list) else []
    return tuple(str(each["id"]) for each in entries if isinstance(each, dict) and "id" in each)
