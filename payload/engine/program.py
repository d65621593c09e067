"""What the model is to say, compiled into positions it must copy from.

The glass box does not think: the prompt is followed by a program with one entry for each token of
the reply. An entry carries three pointers, and each layer of the model follows one of them through
its index, so that the token comes out only if every layer finds the right position. Tokens that
the conversation already holds (a planted value, say) are copied from there; the rest stands in
the entries themselves.

What a reply says is defined in `payload/README.md`; `oracle.py` says it again, on its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from payload.engine.chat import Prompt
from payload.engine.request import ChatRequest, Message, Tool
from payload.engine.tokenizer import (
    CALLS_CLOSE,
    CALLS_OPEN,
    INVOKE_CLOSE,
    INVOKE_OPEN,
    IS_JSON,
    IS_STRING,
    PARAMETER_CLOSE,
    PARAMETER_OPEN,
    PLAN,
    Piece,
    Tokenizer,
)

MAX_CALLS = 8
MAX_WORDS = 16
LEAD = "Let me look that up.\n\n"
NEXT = "next_"

_VALUE = re.compile(r"[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9'_.,:-]{0,31}")
_NAME = re.compile(r'[^"<>\n]{1,64}')


@dataclass(frozen=True)
class Fragment:
    """A stretch of the reply; `message` is where it can be copied from, if anywhere."""

    text: str
    message: int | None = None


@dataclass(frozen=True)
class Program:
    """The reply's tokens and where each one is found.

    Attributes:
        tokens: the reply, ending with the end token.
        entries: the token that each program entry holds.
        sources: for each reply token the prompt position to copy from; None for its own entry.
    """

    tokens: tuple[int, ...]
    entries: tuple[int, ...]
    sources: tuple[int | None, ...]


@dataclass
class _Reply:
    fragments: list[Fragment] = field(default_factory=list)

    def say(self, text: str, message: int | None = None) -> None:
        self.fragments.append(Fragment(text, message))


def compile_program(request: ChatRequest, prompt: Prompt, tokenizer: Tokenizer) -> Program:
    """Return the program for a request."""
    fragments = compose(request)
    text = "".join(fragment.text for fragment in fragments)
    pieces = tokenizer.pieces(text, markup=True)
    sources: list[int | None] = []
    for fragment, tokens in _by_fragment(fragments, pieces):
        span = range(0) if fragment.message is None else prompt.spans[fragment.message]
        sources += _copied(tokens, prompt.tokens, span)
    tokens = [piece.token for piece in pieces]
    hole = tokenizer.control[PLAN]
    pairs = zip(tokens, sources, strict=True)
    entries = [token if source is None else hole for token, source in pairs]
    end = tokenizer.eos
    return Program((*tokens, end), (*entries, end), (*sources, None))


def compose(request: ChatRequest) -> list[Fragment]:
    """Return what the reply says, in order."""
    reply = _Reply()
    answered = _trailing_results(request.messages)
    calls = _follow_ups(request, answered) if answered else _first_calls(request)
    if calls:
        reply.say(LEAD)
        _say_calls(reply, calls)
    elif answered:
        for place, index in enumerate(answered):
            reply.say(" " if place else "")
            _say_result(reply, request.messages[index].content, index)
    else:
        _say_echo(reply, request.messages)
    return [fragment for fragment in reply.fragments if fragment.text]


@dataclass(frozen=True)
class _Argument:
    value: Any
    message: int | None = None


@dataclass(frozen=True)
class _Invocation:
    tool: str
    arguments: dict[str, _Argument]


def _trailing_results(messages: Sequence[Message]) -> list[int]:
    first = len(messages)
    while first and messages[first - 1].role == "tool":
        first -= 1
    return list(range(first, len(messages)))


def _first_calls(request: ChatRequest) -> list[_Invocation]:
    last = len(request.messages) - 1
    message = request.messages[last]
    if not request.tools or message.role != "user":
        return []
    values = [_Argument(value, last) for value in _values(message.content, request.tools)]
    tools = _wanted(request, message.content, has_values=bool(values))
    if not tools:
        return []
    values = values or _earlier_values(request, last)
    texts = [key for key in _fillable(tools[0]) if _is_text(tools[0].properties[key])]
    if len(tools) == 1 and len(texts) == 1 and len(values) > 1:
        return [_invoke(tools[0], [value]) for value in values[:MAX_CALLS]]
    return [_invoke(tool, values) for tool in tools[:MAX_CALLS]]


def _wanted(request: ChatRequest, content: str, *, has_values: bool) -> list[Tool]:
    """Return the tools to call: the forced one, else those named, else the first if it can be."""
    by_name = {tool.name: tool for tool in request.tools}
    if request.forced_tool is not None:
        return [by_name[request.forced_tool]]
    named = [by_name[word] for word in re.findall(r"[A-Za-z0-9_-]+", content) if word in by_name]
    if named:
        return list({tool.name: tool for tool in named}.values())
    return [request.tools[0]] if has_values or request.must_call else []


def _earlier_values(request: ChatRequest, last: int) -> list[_Argument]:
    for index in range(last - 1, -1, -1):
        found = _values(request.messages[index].content, request.tools)
        if found:
            return [_Argument(found[-1], index)]
    return []


def _values(content: str, tools: Sequence[Tool]) -> list[str]:
    """Return the opaque values of a text: long enough, with letters and digits."""
    names = {tool.name for tool in tools}
    found = [match for match in _VALUE.findall(content) if match not in names]
    return list(dict.fromkeys(value for value in found if _is_opaque(value)))


def _is_opaque(value: str) -> bool:
    return len(value) >= 4 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type", "string") == "string" and not schema.get("enum")


def _fillable(tool: Tool) -> list[str]:
    return [key for key in tool.required if _NAME.fullmatch(key)]


def _invoke(tool: Tool, values: Sequence[_Argument]) -> _Invocation:
    left = list(values) or [_Argument("unknown")]
    arguments = {}
    for key in _fillable(tool):
        schema = tool.properties[key]
        if not _is_text(schema):
            arguments[key] = _Argument(_default(schema))
            continue
        arguments[key] = left[0]
        if len(left) > 1:
            left.pop(0)
    return _Invocation(tool.name, arguments)


def _default(schema: Mapping[str, Any]) -> object:
    if schema.get("enum"):
        first = schema["enum"][0]
        return None if "<" in json.dumps(first) else first  # markup would end the parameter
    defaults: dict[str, object] = {
        "integer": 1,
        "number": 1,
        "boolean": True,
        "array": [],
        "object": {},
    }
    kind = schema.get("type")
    return defaults.get(kind) if isinstance(kind, str) else None


def _follow_ups(request: ChatRequest, answered: Sequence[int]) -> list[_Invocation]:
    if not request.tools:
        return []
    by_name = {tool.name: tool for tool in request.tools}
    called = {call.id: call.name for message in request.messages for call in message.calls}
    found = []
    for index in answered:
        message = request.messages[index]
        tool = by_name.get(called.get(message.call_id or "", ""), request.tools[0])
        found += list(_next_calls(tool, message.content, index))
    return found[:MAX_CALLS]


def _next_calls(tool: Tool, content: str, index: int) -> Iterator[_Invocation]:
    for key, value in _json_object(content).items():
        name = key.removeprefix(NEXT)
        if key == name or name not in tool.properties or not isinstance(value, str):
            continue
        if not (_VALUE.fullmatch(value) and _is_opaque(value) and _NAME.fullmatch(name)):
            continue
        rest = _invoke(tool, [_Argument(value, index)]).arguments
        yield _Invocation(tool.name, {**rest, name: _Argument(value, index)})


def _json_object(content: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _say_calls(reply: _Reply, calls: Sequence[_Invocation]) -> None:
    reply.say(CALLS_OPEN)
    for call in calls:
        reply.say(f'\n{INVOKE_OPEN}{call.tool}">')
        for key, argument in call.arguments.items():
            is_text = isinstance(argument.value, str)
            written = argument.value if is_text else json.dumps(argument.value, ensure_ascii=False)
            reply.say(f"\n{PARAMETER_OPEN}{key}{IS_STRING if is_text else IS_JSON}")
            reply.say(written, argument.message)
            reply.say(PARAMETER_CLOSE)
        reply.say(f"\n{INVOKE_CLOSE}")
    reply.say(f"\n{CALLS_CLOSE}")


def _say_result(reply: _Reply, content: str, index: int) -> None:
    items = list(_json_object(content).items())
    key, value = items[-1] if items else ("result", content)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    reply.say(f"The {_words(key.replace('_', ' ')) or 'result'} is ")
    reply.say(_words(text) or "empty", index)
    reply.say(".")


def _say_echo(reply: _Reply, messages: Sequence[Message]) -> None:
    last = len(messages) - 1
    said = _words(messages[last].content)
    if said:
        reply.say("You said: ")
        reply.say(said, last)
        reply.say(".")
    else:
        reply.say("Hello.")


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text)[:MAX_WORDS]).rstrip(".,:;")


def _by_fragment(
    fragments: Sequence[Fragment], pieces: Sequence[Piece]
) -> Iterator[tuple[Fragment, list[int]]]:
    """Deal the reply's tokens to the fragments in which they begin."""
    start, place = 0, 0
    for fragment in fragments:
        start += len(fragment.text)
        first = place
        while place < len(pieces) and pieces[place].start < start:
            place += 1
        yield fragment, [piece.token for piece in pieces[first:place]]


def _copied(tokens: Sequence[int], prompt: Sequence[int], span: range) -> list[int | None]:
    """Return prompt positions to copy the tokens from: the longest runs there are, latest first."""
    sources: list[int | None] = []
    while len(sources) < len(tokens):
        rest = tokens[len(sources) :]
        run = max((_run_length(rest, prompt, span, start), start) for start in (*span, -1))
        sources += range(run[1], run[1] + run[0]) if run[0] else [None]
    return sources


def _run_length(tokens: Sequence[int], prompt: Sequence[int], span: range, start: int) -> int:
    length = 0
    while (
        length < len(tokens) and start + length in span and prompt[start + length] == tokens[length]
    ):
        length += 1
    return length
