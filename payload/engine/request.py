"""A chat completion request, parsed once at the edge; from there on values only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_STOPS = 4
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ROLES = ("system", "developer", "user", "assistant", "tool")


class BadRequestError(Exception):
    """A request that cannot be served as it is; the message is the client's answer.

    It may quote the request, where JSON allows half of a surrogate pair; that is told escaped.
    """

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_value") -> None:
        super().__init__(message.encode(errors="backslashreplace").decode())
        self.status = status
        self.code = code


@dataclass(frozen=True)
class ToolCall:
    """A call that an assistant message of the conversation made."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """One message: its role, its text, the calls it made, the call it answers."""

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


@dataclass(frozen=True)
class Tool:
    """A declared function.

    Attributes:
        name: what the model calls it.
        properties: JSON schemas of its parameters, in the order they were declared.
        required: the parameters to fill; all of them when the schema names none.
        declaration: the function's JSON, as shown to the model.
    """

    name: str
    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    declaration: str


@dataclass(frozen=True)
class ChatRequest:
    """What a client asked for.

    Attributes:
        messages: the conversation.
        tools: declared functions; empty when `tool_choice` is none.
        must_call: `tool_choice` is required, or names a function.
        forced_tool: the function that `tool_choice` names.
        max_tokens: limit of the reply, None for the context's end.
        stop: texts that end the reply.
        stream: server-sent events.
        include_usage: a last chunk with the usage.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    must_call: bool = False
    forced_tool: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False


def parse_request(body: object, *, model: str) -> ChatRequest:
    """Return the request.

    Raises:
        BadRequestError: what is wrong, in the words of the API.
    """
    fields = _object(body, "the body")
    check_model(fields.get("model"), model)
    _check_unsupported(fields)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a non-empty array")
    tools = _tools(_list(fields, "tools"))
    must_call, forced, offered = _choice(fields.get("tool_choice"), tools)
    options = _object(fields.get("stream_options") or {}, "stream_options")
    return ChatRequest(
        messages=tuple(_message(entry) for entry in messages),
        tools=tools if offered else (),
        must_call=must_call,
        forced_tool=forced,
        max_tokens=_limit(fields),
        stop=_stops(fields.get("stop")),
        stream=fields.get("stream") is True,
        include_usage=options.get("include_usage") is True,
    )


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{what} must be a JSON object")
    return value


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequestError(f"{name} must be an array")
    return value


def check_model(asked: object, served: str) -> None:
    """Refuse any model but the one that is served; None asks for whatever that is.

    Raises:
        BadRequestError: there is no such model.
    """
    if asked is not None and asked != served:
        raise BadRequestError(
            f"the model `{asked}` does not exist; this server has `{served}`",
            status=404,
            code="model_not_found",
        )


def _check_unsupported(fields: Mapping[str, Any]) -> None:
    if fields.get("n") not in (None, 1):
        raise BadRequestError("n must be 1: the model has one right answer")
    for name in ("logprobs", "top_logprobs"):
        if fields.get(name):
            raise BadRequestError(f"{name} is not supported")


def _limit(fields: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadRequestError(f"{name} must be a positive integer")
        return value
    return None


def _stops(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS:
        raise BadRequestError(f"stop must be a string or an array of at most {MAX_STOPS}")
    if not all(isinstance(text, str) and text for text in stops):
        raise BadRequestError("every stop must be a non-empty string")
    return tuple(stops)


def _message(entry: object) -> Message:
    fields = _object(entry, "a message")
    role = fields.get("role")
    if role not in ROLES:
        raise BadRequestError(f"unknown role: {role}; there are {', '.join(ROLES)}")
    calls = tuple(_call(call) for call in _list(fields, "tool_calls"))
    call_id = fields.get("tool_call_id")
    return Message(
        role=role,
        content=_content(fields.get("content")),
        calls=calls,
        call_id=call_id if isinstance(call_id, str) else None,
    )


def _content(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise BadRequestError("content must be a string, an array of parts, or null")
    texts = []
    for part in value:
        text = _object(part, "a content part").get("text")
        if not isinstance(text, str):
            raise BadRequestError("only content parts of type text are supported")
        texts.append(text)
    return "".join(texts)


def _call(entry: object) -> ToolCall:
    fields = _object(entry, "a tool call")
    function = _object(fields.get("function"), "function")
    name, arguments, call_id = function.get("name"), function.get("arguments"), fields.get("id")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise BadRequestError("a tool call needs function.name and function.arguments")
    return ToolCall(call_id if isinstance(call_id, str) else "", name, arguments)


def _tools(entries: list[Any]) -> tuple[Tool, ...]:
    tools = tuple(_tool(entry) for entry in entries)
    if len({tool.name for tool in tools}) < len(tools):
        raise BadRequestError("two tools have the same name")
    return tools


def _tool(entry: object) -> Tool:
    function = _object(_object(entry, "a tool").get("function"), "function")
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise BadRequestError("function.name must be 1 to 64 of a-z, A-Z, 0-9, _ and -")
    schema = _object(function.get("parameters") or {}, "parameters")
    properties = _object(schema.get("properties") or {}, "properties")
    known = {key: _property(value) for key, value in properties.items()}
    required = [key for key in _list(schema, "required") if isinstance(key, str) and key in known]
    try:
        declaration = json.dumps(function, ensure_ascii=False)
    except RecursionError as error:  # what was just read may be too deep to be written again
        raise BadRequestError("function is nested too deeply") from error
    return Tool(name, known, tuple(required) or tuple(known), declaration)


def _property(value: object) -> Mapping[str, Any]:
    schema = value if isinstance(value, dict) else {}
    _list(schema, "enum")
    return schema


def _choice(choice: object, tools: tuple[Tool, ...]) -> tuple[bool, str | None, bool]:
    """Return whether a call is a must, of which tool, and whether tools are offered at all."""
    if choice in (None, "auto"):
        return False, None, True
    if choice == "none":
        return False, None, False
    if choice == "required":
        if not tools:
            raise BadRequestError("tool_choice is required but there are no tools")
        return True, None, True
    name = _object(_object(choice, "tool_choice").get("function"), "function").get("name")
    if not any(tool.name == name for tool in tools):
        raise BadRequestError(f"tool_choice names a tool that is not declared: {name}")
    return True, name, True
