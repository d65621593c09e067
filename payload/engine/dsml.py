"""Reading tool calls out of generated text, as it streams.

Text goes out at once, up to the mark that opens a section of calls; from there on each invocation
is held until it is complete. Whatever is not well formed leaks: it is given back as content, as in
production.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from payload.engine import strict_json
from payload.engine.tokenizer import (
    CALLS_CLOSE,
    CALLS_OPEN,
    INVOKE_CLOSE,
    INVOKE_OPEN,
    PARAMETER_CLOSE,
    PARAMETER_OPEN,
)

_NAME = r'([^"<>\n]{1,64})'
_INVOKE = re.compile(
    rf'\s*{re.escape(INVOKE_OPEN)}{_NAME}">(.*?){re.escape(INVOKE_CLOSE)}', re.DOTALL
)
_PARAMETER = re.compile(
    rf'\s*{re.escape(PARAMETER_OPEN)}{_NAME}" string="(true|false)">'
    rf"(.*?){re.escape(PARAMETER_CLOSE)}\s*",
    re.DOTALL,
)


@dataclass(frozen=True)
class Text:
    """Content for the client."""

    text: str


@dataclass(frozen=True)
class Call:
    """A complete tool call.

    Attributes:
        name: the function.
        arguments: a JSON object.
    """

    name: str
    arguments: str


class CallParser:
    """Splits a stream of text into content and calls.

    Attributes:
        is_active: false where no tools were offered: then all is content.
    """

    def __init__(self, *, is_active: bool) -> None:
        self.is_active = is_active
        self._pending = ""
        self._inside = False

    def push(self, text: str) -> list[Text | Call]:
        """Return what the text completes."""
        if not self.is_active:
            return _text(text)
        self._pending += text
        return self._section() if self._inside else self._outside()

    def finish(self) -> list[Text | Call]:
        """Return what is left when the model has ended: an unfinished section leaks."""
        left, self._pending = self._pending, ""
        return _text(f"{CALLS_OPEN}{left}" if self._inside else left)

    def _outside(self) -> list[Text | Call]:
        before, mark, after = self._pending.partition(CALLS_OPEN)
        if mark:
            self._inside, self._pending = True, after
            return [*_text(before.removesuffix("\n\n")), *self._section()]
        # A mark may be half here, and so may the blank line before it.
        held = _open_tail(self._pending, f"\n\n{CALLS_OPEN}")
        sure = len(self._pending) - held
        ready, self._pending = self._pending[:sure], self._pending[sure:]
        return _text(ready)

    def _section(self) -> list[Text | Call]:
        found: list[Text | Call] = []
        while match := _INVOKE.match(self._pending):
            call = _call(match.group(1), match.group(2))
            if call is None:
                return [*found, *self._leak()]
            found.append(call)
            self._pending = self._pending[match.end() :]
        rest = self._pending.lstrip()
        if rest.startswith(CALLS_CLOSE):
            self._inside, self._pending = False, rest[len(CALLS_CLOSE) :]
            return [*found, *self._outside()]
        if not _may_continue(rest):
            return [*found, *self._leak()]
        return found

    def _leak(self) -> list[Text | Call]:
        """Give up on the section: nothing behind it is read as a call any more."""
        left, self._pending = self._pending, ""
        self._inside, self.is_active = False, False
        return _text(f"{CALLS_OPEN}{left}")


def _text(text: str) -> list[Text | Call]:
    return [Text(text)] if text else []


def _open_tail(text: str, mark: str) -> int:
    """Return how many last characters of `text` could be the beginning of `mark` or its core."""
    core = mark.lstrip("\n")
    longest = min(len(text), len(mark) - 1)
    for length in range(longest, 0, -1):
        tail = text[-length:]
        if mark.startswith(tail) or core.startswith(tail):
            return length
    return 0


def _may_continue(rest: str) -> bool:
    """Tell whether `rest` can still grow into an invocation or the end of the section."""
    if rest.startswith(INVOKE_OPEN):
        return True
    return INVOKE_OPEN.startswith(rest) or CALLS_CLOSE.startswith(rest)


def _call(name: str, body: str) -> Call | None:
    arguments: dict[str, object] = {}
    place = 0
    while match := _PARAMETER.match(body, place):
        key, is_text, written = match.groups()
        if "<｜" in written or "</｜" in written:
            return None
        try:
            arguments[key] = written if is_text == "true" else strict_json.read(written)
        except ValueError:
            return None
        place = match.end()
    if body[place:].strip():
        return None
    return Call(name, json.dumps(arguments, ensure_ascii=False))
