"""From tokens to what the API says: text, stops, tool calls, finish reason, usage, chunks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from payload.engine.dsml import Call, CallParser, Text
from payload.engine.request import ChatRequest
from payload.engine.sequence import Ending
from payload.engine.tokenizer import TextStream, Tokenizer

ARGUMENT_PIECE = 16  # characters of arguments in one streamed fragment


@dataclass(frozen=True)
class NumberedCall:
    """A parsed call with the id and index that the client sees."""

    index: int
    id: str
    name: str
    arguments: str


Delta = Text | NumberedCall


class StopWords:
    """Cuts a stream of text at the first stop word, also when it comes in pieces."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._held = ""
        self.is_hit = False

    def push(self, text: str) -> str:
        """Return what is surely before any stop word."""
        if not self._words or self.is_hit:
            return "" if self.is_hit else text
        self._held += text
        places = [place for word in self._words if (place := self._held.find(word)) >= 0]
        if places:
            self.is_hit = True
            return self._held[: min(places)]
        keep = max(_overlap(self._held, word) for word in self._words)
        cut = len(self._held) - keep
        sure, self._held = self._held[:cut], self._held[cut:]
        return sure

    def finish(self) -> str:
        """Return what was held back, if no stop word came of it."""
        return "" if self.is_hit else self._held


def _overlap(text: str, word: str) -> int:
    """Return how many last characters of `text` begin `word`."""
    for length in range(min(len(text), len(word) - 1), 0, -1):
        if text.endswith(word[:length]):
            return length
    return 0


class ReplyBuilder:
    """Builds one reply from its tokens."""

    def __init__(self, request: ChatRequest, tokenizer: Tokenizer) -> None:
        self._text = TextStream(tokenizer)
        self._stops = StopWords(request.stop)
        self._parser = CallParser(is_active=bool(request.tools))
        self._count = 0
        self._calls = 0
        self.raw = ""

    @property
    def completion_tokens(self) -> int:
        """How many tokens the model generated."""
        return self._count

    @property
    def is_stopped(self) -> bool:
        """Whether a stop word ended the reply."""
        return self._stops.is_hit

    def push(self, token: int) -> list[Delta]:
        """Return what the token completes."""
        self._count += 1
        return self._parse(self._text.push(token))

    def finish(self) -> list[Delta]:
        """Return what is left at the end."""
        found = self._parse(self._text.finish())
        held = self._stops.finish()
        self.raw += held
        return [
            *found,
            *self._number(self._parser.push(held)),
            *self._number(self._parser.finish()),
        ]

    def finish_reason(self, ending: Ending) -> str:
        """Return the API's word for how the reply ended."""
        if ending is Ending.STOP or self.is_stopped:
            return "tool_calls" if self._calls else Ending.STOP.value
        return ending.value

    def _parse(self, text: str) -> list[Delta]:
        sure = self._stops.push(text)
        self.raw += sure
        return self._number(self._parser.push(sure))

    def _number(self, found: list[Text | Call]) -> list[Delta]:
        deltas: list[Delta] = []
        for item in found:
            if isinstance(item, Text):
                deltas.append(item)
                continue
            call_id = f"call_{uuid.uuid4().hex[:24]}"
            deltas.append(NumberedCall(self._calls, call_id, item.name, item.arguments))
            self._calls += 1
        return deltas


@dataclass(frozen=True)
class Envelope:
    """What every object of one reply carries."""

    id: str
    model: str
    created_s: int

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return a streamed chunk with one choice."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion.chunk", [choice])

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the last chunk, which has the usage and no choice."""
        return {**self._object("chat.completion.chunk", []), "usage": usage}

    def completion(
        self, deltas: list[Delta], finish_reason: str, usage: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a whole reply."""
        text = "".join(delta.text for delta in deltas if isinstance(delta, Text))
        calls = [
            {
                "id": delta.id,
                "type": "function",
                "function": {"name": delta.name, "arguments": delta.arguments},
            }
            for delta in deltas
            if isinstance(delta, NumberedCall)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": finish_reason}
        return {**self._object("chat.completion", [choice]), "usage": usage}

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
        }


def pieces_of(delta: Delta) -> Iterator[dict[str, Any]]:
    """Yield the `delta` objects that stream a piece: one for text, several for a call."""
    if isinstance(delta, Text):
        yield {"content": delta.text}
        return
    head = {"name": delta.name, "arguments": ""}
    first = {"index": delta.index, "id": delta.id, "type": "function", "function": head}
    yield {"tool_calls": [first]}
    for start in range(0, len(delta.arguments), ARGUMENT_PIECE):
        piece = delta.arguments[start : start + ARGUMENT_PIECE]
        yield {"tool_calls": [{"index": delta.index, "function": {"arguments": piece}}]}


def usage_of(prompt_tokens: int, program_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the usage: all that the prefill wrote, and all that was generated."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "program_tokens": program_tokens},
    }
