"""The message a response adds up to, whatever dialect of the OpenAI API the server speaks.

Servers differ: no usage, no ids, `reasoning` or `reasoning_content`, arguments as an object
instead of a string, a name in pieces or repeated, several calls in one chunk, a call that is no
list, no `[DONE]`. `tests/golden/dialects` has one stream of each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from fleetctl.trial.events import Ended, Exchange

DONE = "[DONE]"


@dataclass(frozen=True)
class Call:
    """One tool call as the server parsed it.

    Attributes:
        id: the server's id, or empty.
        name: the tool's name.
        arguments: the arguments' text as received; an object is written as JSON.
    """

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Usage:
    """Token counts as the server reports them; None where it doesn't."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True)
class Reply:
    """What an exchange's response says, put together.

    Attributes:
        content: all text for the user.
        reasoning: all reasoning text.
        calls: tool calls in order.
        finish_reason: why it ended, or None when the server never said.
        usage: token counts.
        model: the model's name according to the server.
        response_id: the response's id.
        is_done_marked: a stream ended with `[DONE]`.
        choices: pieces of the answer that were seen.
        malformed: pieces of the response that could not be read.
        server_error: status (0 if unknown) and message of an error inside the response.
        oddities: harmless differences from the OpenAI API, as flags.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    response_id: str = ""
    is_done_marked: bool = False
    choices: int = 0
    malformed: int = 0
    server_error: tuple[int, str] | None = None
    oddities: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """No text, no reasoning and no call."""
        return not (self.content.strip() or self.reasoning.strip() or self.calls)


def assemble(exchange: Exchange) -> Reply:
    """Return the message that the exchange's response adds up to; never raises."""
    builder = ReplyBuilder()
    for event in exchange.events:
        builder.take(event.data)
    if exchange.tail.strip() and exchange.ended is Ended.COMPLETE:
        builder.malformed += 1
    if not exchange.events and exchange.body:
        builder.take(exchange.body.removeprefix("\ufeff"))
    return builder.reply()


@dataclass
class _GrowingCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def whole(self) -> Call:
        return Call(self.id, self.name, "".join(self.arguments))


class ReplyBuilder:
    """Puts a message together piece by piece; text is joined once at the end.

    Attributes:
        malformed: pieces that could not be read.
        has_token: a piece of an answer has come; a role alone is none.
    """

    def __init__(self) -> None:
        self.malformed = 0
        self.has_token = False
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _GrowingCall] = {}
        self._finish_reason: str | None = None
        self._usage = Usage()
        self._model = ""
        self._response_id = ""
        self._is_done_marked = False
        self._choices = 0
        self._server_error: tuple[int, str] | None = None
        self._oddities: set[str] = set()

    def take(self, data: str) -> None:
        """Take the data of one event, or a whole body; never raises."""
        if data.strip() == DONE:
            self._is_done_marked = True
            return
        try:
            self._take_chunk(json.loads(data))
        except (ArithmeticError, AttributeError, TypeError, ValueError, RecursionError):
            # ArithmeticError: JSON may hold 1e999, of which no count can be made
            self.malformed += 1

    def reply(self) -> Reply:
        """Return what the pieces so far add up to."""
        return Reply(
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            calls=tuple(self._calls[index].whole() for index in sorted(self._calls)),
            finish_reason=self._finish_reason,
            usage=self._usage,
            model=self._model,
            response_id=self._response_id,
            is_done_marked=self._is_done_marked,
            choices=self._choices,
            malformed=self.malformed,
            server_error=self._server_error,
            oddities=frozenset(self._oddities),
        )

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        if chunk.get("error") or chunk.get("object") == "error":
            self._server_error = _server_error(chunk)
        if chunk.get("usage"):
            self._usage = _usage(chunk["usage"])
        self._model = str(chunk.get("model") or self._model)
        self._response_id = str(chunk.get("id") or self._response_id)
        for choice in chunk.get("choices") or ():
            if (choice.get("index") or 0) == 0:
                self._choices += 1
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        if choice.get("finish_reason"):
            self._finish_reason = str(choice["finish_reason"])
        message = choice.get("delta") or choice.get("message") or {}
        if content := _text(message.get("content")):
            self._content.append(content)
            self.has_token = True
        if reasoning := _text(message.get("reasoning_content") or message.get("reasoning")):
            self._reasoning.append(reasoning)
            self.has_token = True
        if calls := message.get("tool_calls"):
            self.has_token = True
            for place, fragment in enumerate([calls] if isinstance(calls, dict) else calls):
                # a whole message lists whole calls; only fragments of a stream need an index
                known = place if "delta" not in choice else fragment.get("index")
                self._take_call(fragment, self._index_for(fragment) if known is None else known)
        if isinstance(message.get("function_call"), dict):
            self.has_token = True
            self._oddities.add("legacy_function_call")
            self._take_call({"function": message["function_call"]}, 0)

    def _take_call(self, fragment: dict[str, Any], index: int) -> None:
        call = self._calls.setdefault(int(index), _GrowingCall())
        function = fragment.get("function") or {}
        name = str(function.get("name") or "")
        call.id = call.id or str(fragment.get("id") or "")
        call.name = call.name if name == call.name else call.name + name
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            self._oddities.add("arguments_as_object")
            arguments = json.dumps(arguments, ensure_ascii=False)
        call.arguments.append(arguments or "")

    def _index_for(self, fragment: dict[str, Any]) -> int:
        """Guess the index of a fragment without one: its id, else a new name starts a new call."""
        self._oddities.add("no_call_index")
        known = [
            at for at, call in self._calls.items() if call.id and call.id == fragment.get("id")
        ]
        if known:
            return known[0]
        is_new = bool(fragment.get("id") or (fragment.get("function") or {}).get("name"))
        return len(self._calls) if is_new or not self._calls else len(self._calls) - 1


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    raise TypeError(f"content is a {type(content).__name__}")


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _server_error(chunk: dict[str, Any]) -> tuple[int, str]:
    error = chunk.get("error")
    facts = error if isinstance(error, dict) else chunk
    message = error if isinstance(error, str) else str(facts.get("message") or facts)
    code = facts.get("code", facts.get("status_code"))
    return (int(code) if isinstance(code, int) else 0), message[:500]
