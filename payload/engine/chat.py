"""The chat template: a conversation as the tokens of a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from payload.engine import strict_json
from payload.engine.request import ChatRequest, Message, ToolCall
from payload.engine.tokenizer import (
    ASSISTANT,
    BOS,
    CALLS_CLOSE,
    CALLS_OPEN,
    INVOKE_CLOSE,
    INVOKE_OPEN,
    IS_JSON,
    IS_STRING,
    PARAMETER_CLOSE,
    PARAMETER_OPEN,
    TOOL,
    USER,
    Tokenizer,
)

TOOLS_HEADING = "\n\n## Tools\n"


@dataclass(frozen=True)
class Prompt:
    """A rendered conversation.

    Attributes:
        tokens: what the model reads.
        spans: for each message, where the tokens of its content lie.
    """

    tokens: tuple[int, ...]
    spans: tuple[range, ...]


def render(request: ChatRequest, tokenizer: Tokenizer) -> Prompt:
    """Return the prompt, ending where the assistant is to speak."""
    tokens = [tokenizer.control[BOS]]
    spans = []
    if request.tools:
        listing = "\n".join(tool.declaration for tool in request.tools)
        tokens += tokenizer.encode(f"{TOOLS_HEADING}{listing}\n")
    for message in request.messages:
        if message.role in ROLE_TOKENS:
            tokens.append(tokenizer.control[ROLE_TOKENS[message.role]])
        start = len(tokens)
        tokens += tokenizer.encode(message.content)
        spans.append(range(start, len(tokens)))
        for part in _calls(message):
            tokens += tokenizer.encode(part.text, markup=part.markup)
        if message.role == "assistant":
            tokens.append(tokenizer.eos)
    tokens.append(tokenizer.control[ASSISTANT])
    return Prompt(tuple(tokens), tuple(spans))


ROLE_TOKENS = {"user": USER, "assistant": ASSISTANT, "tool": TOOL}


@dataclass(frozen=True)
class _Part:
    """A stretch of an invocation: the template's own, with marks, or somebody's text."""

    text: str
    markup: bool = False


def markup_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return one invocation in DSML.

    Text values are written as they are, others as JSON.
    """
    return "".join(part.text for part in _invocation(name, arguments))


def least_tokens(request: ChatRequest, tokenizer: Tokenizer) -> int:
    """Return how many tokens a prompt surely takes, without cutting its text into any."""
    texts = (
        *(tool.declaration for tool in request.tools),
        *(message.content for message in request.messages),
        *(part.text for message in request.messages for part in _calls(message)),
    )
    return -(-sum(map(len, texts)) // tokenizer.longest)


def _invocation(name: str, arguments: Mapping[str, Any]) -> Iterator[_Part]:
    yield _Part(INVOKE_OPEN, markup=True)
    yield _Part(name)
    yield _Part('">\n')
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        yield _Part(PARAMETER_OPEN, markup=True)
        yield _Part(key)
        yield _Part(IS_STRING if is_text else IS_JSON, markup=True)
        yield _Part(value if is_text else json.dumps(value, ensure_ascii=False))
        yield _Part(f"{PARAMETER_CLOSE}\n", markup=True)
    yield _Part(INVOKE_CLOSE, markup=True)


def _calls(message: Message) -> Iterator[_Part]:
    if not message.calls:
        return
    yield _Part(f"\n\n{CALLS_OPEN}", markup=True)
    for call in message.calls:
        yield _Part("\n")
        yield from _invocation(call.name, _arguments(call))
    yield _Part(f"\n{CALLS_CLOSE}", markup=True)


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    try:
        value = strict_json.read(call.arguments)
    except ValueError:
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}
