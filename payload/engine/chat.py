"""The chat template: a conversation as the tokens of a prompt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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
        tokens += _calls(message, tokenizer)
        if message.role == "assistant":
            tokens.append(tokenizer.eos)
    tokens.append(tokenizer.control[ASSISTANT])
    return Prompt(tuple(tokens), tuple(spans))


ROLE_TOKENS = {"user": USER, "assistant": ASSISTANT, "tool": TOOL}


def markup_of(name: str, arguments: dict[str, Any]) -> str:
    """Return one invocation in DSML.

    Text values are written as they are, others as JSON.
    """
    lines = [f'{INVOKE_OPEN}{name}">']
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        written = value if is_text else json.dumps(value, ensure_ascii=False)
        kind = IS_STRING if is_text else IS_JSON
        lines.append(f"{PARAMETER_OPEN}{key}{kind}{written}{PARAMETER_CLOSE}")
    return "\n".join((*lines, INVOKE_CLOSE))


def _calls(message: Message, tokenizer: Tokenizer) -> list[int]:
    if not message.calls:
        return []
    blocks = (markup_of(call.name, _arguments(call)) for call in message.calls)
    text = "\n".join((f"\n\n{CALLS_OPEN}", *blocks, CALLS_CLOSE))
    return [piece.token for piece in tokenizer.pieces(text, markup=True)]


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}
