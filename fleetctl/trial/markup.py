"""Finds tool-call markup where none may be: in the text a user reads, or inside arguments."""

from __future__ import annotations

import enum
import functools
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from fleetctl.trial.text import fold, split_code

QUOTE_CHARS = 16  # as much of the prompt must surround a marker for it to count as quoted
_EXCERPT_CHARS = 80


class Grade(enum.StrEnum):
    """How much of the markup is there.

    Attributes:
        FULL: opened and closed, or opened where the format has no closing.
        PARTIAL: opened and never closed, or the text ends inside an opening.
        CLOSE_ONLY: only the closing half.
    """

    FULL = "full"
    PARTIAL = "partial"
    CLOSE_ONLY = "close_only"


@dataclass(frozen=True)
class Leak:
    """Markup found in a text.

    Attributes:
        format: name of the format in markup.toml.
        grade: how much of it there is.
        excerpt: the place, for people; folded text.
        is_in_code: it stands in a code fence or code span, so it may be meant.
    """

    format: str
    grade: Grade
    excerpt: str
    is_in_code: bool = False


@dataclass(frozen=True)
class Format:
    """One way of writing tool calls, as in markup.toml."""

    name: str
    opens: re.Pattern[str] | None
    closes: re.Pattern[str] | None
    starts: tuple[str, ...]
    is_closed_by_end: bool


@dataclass(frozen=True)
class Markup:
    """All formats, with the version of the data file."""

    version: int
    shortest_prefix: int
    formats: tuple[Format, ...]


@functools.cache
def load_markup() -> Markup:
    """Return the formats of markup.toml."""
    text = resources.files("fleetctl.trial").joinpath("markup.toml").read_text("utf-8")
    data = tomllib.loads(text)
    formats = (
        Format(
            name=entry["name"],
            opens=_any_of(entry.get("open", [])),
            closes=_any_of(entry.get("close", [])),
            starts=tuple(entry.get("start", [])),
            is_closed_by_end=bool(entry.get("is_closed_by_end")),
        )
        for entry in data["format"]
    )
    return Markup(int(data["version"]), int(data["shortest_prefix"]), tuple(formats))


def find_leaks(
    text: str, *, prompt: str = "", tools: Sequence[str] = (), markup: Markup | None = None
) -> tuple[Leak, ...]:
    """Return the markup in a whole text; at most one leak per format outside code, and one inside.

    Args:
        text: all of a reply's content, reasoning or arguments; never a single chunk of a stream.
        prompt: what the request contained: markers quoted from it are no leak.
        tools: names of the declared tools, for calls written without markup.
        markup: the formats; those of markup.toml by default.
    """
    formats = markup or load_markup()
    if not _is_suspicious(text, tools):
        return ()
    folded_prompt = fold(prompt)
    folded_prompt += "\n" + split_code(folded_prompt)[0]
    outside, inside = split_code(fold(text))
    found = _scan(outside, folded_prompt, tools, formats)
    quoted = _scan(inside, folded_prompt, tools, formats) if inside else ()
    in_code = (Leak(leak.format, leak.grade, leak.excerpt, is_in_code=True) for leak in quoted)
    return (*found, *in_code)


def _is_suspicious(text: str, tools: Sequence[str]) -> bool:
    """Tell quickly whether any pattern can match: all of them need one of these."""
    return not text.isascii() or any(sign in text for sign in ("<", "[", "{", "=", "|", *tools))


def _scan(text: str, prompt: str, tools: Sequence[str], markup: Markup) -> tuple[Leak, ...]:
    leaks = [leak for form in markup.formats if (leak := _scan_format(text, prompt, form, markup))]
    leaks += [leak for find in (_bare_json, _pythonic) if (leak := find(text, prompt, tools))]
    named = [leak for leak in leaks if leak.format != "special_token"]
    return tuple(named or leaks)


def _scan_format(text: str, prompt: str, form: Format, markup: Markup) -> Leak | None:
    opened = _first(form.opens, text, prompt)
    closed = _first(form.closes, text, prompt)
    if opened is not None:
        ends = form.closes is None or form.is_closed_by_end or closed is not None
        return Leak(form.name, Grade.FULL if ends else Grade.PARTIAL, _excerpt(text, opened))
    if closed is not None:
        return Leak(form.name, Grade.CLOSE_ONLY, _excerpt(text, closed))
    at = _cut_start(text, form.starts, markup.shortest_prefix)
    return Leak(form.name, Grade.PARTIAL, _excerpt(text, at)) if at is not None else None


def _first(pattern: re.Pattern[str] | None, text: str, prompt: str) -> int | None:
    """Return where the pattern first matches outside quotes of the prompt."""
    for match in pattern.finditer(text) if pattern else ():
        if not _is_quoted(match, text, prompt):
            return match.start()
    return None


def _is_quoted(match: re.Match[str], text: str, prompt: str) -> bool:
    if not prompt or match.group() not in prompt:
        return False
    window = text[max(0, match.start() - QUOTE_CHARS) : match.end() + QUOTE_CHARS]
    return len(window) >= len(match.group()) + QUOTE_CHARS and window in prompt


def _cut_start(text: str, starts: Sequence[str], shortest: int) -> int | None:
    """Return where a text's last characters begin an opening literal that they don't finish."""
    end = text.rstrip()
    for start in starts:
        for length in range(len(start) - 1, shortest - 1, -1):
            if end.endswith(start[:length]):
                return len(end) - length
    return None


def _bare_json(text: str, prompt: str, tools: Sequence[str]) -> Leak | None:
    """Find a JSON object that names a declared tool and holds its arguments."""
    if not tools:
        return None
    key = r'"(?:name|function|tool|tool_name)"\s*:\s*"(?:' + _words(tools) + r')"'
    arguments = r'"(?:arguments|parameters|args|input)"\s*:'
    pattern = re.compile(
        rf"\{{\s*(?:\"type\"\s*:\s*\"function\"\s*,\s*)?(?:{key}\s*,\s*{arguments}|"
        rf"{arguments}[^{{}}]*\{{[^{{}}]*\}}\s*,\s*{key})"
    )
    for match in pattern.finditer(text):
        if not _is_quoted(match, text, prompt):
            grade = Grade.FULL if _is_object_at(text, match.start()) else Grade.PARTIAL
            return Leak("bare_json", grade, _excerpt(text, match.start()))
    return None


def _pythonic(text: str, prompt: str, tools: Sequence[str]) -> Leak | None:
    """Find a call of a declared tool in Python's spelling, at the start of a line."""
    if not tools:
        return None
    pattern = re.compile(rf"^[ \t]*(?:\[[ \t]*)?(?:{_words(tools)})\(\s*\w+\s*=", re.MULTILINE)
    for match in pattern.finditer(text):
        if not _is_quoted(match, text, prompt):
            grade = Grade.FULL if ")" in text[match.end() :] else Grade.PARTIAL
            return Leak("pythonic", grade, _excerpt(text, match.start()))
    return None


def _is_object_at(text: str, start: int) -> bool:
    try:
        json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return True


def _words(tools: Sequence[str]) -> str:
    return "|".join(re.escape(tool) for tool in sorted(tools, key=len, reverse=True))


def _excerpt(text: str, at: int) -> str:
    start = max(0, at - 20)
    return text[start : start + _EXCERPT_CHARS]


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns)) if patterns else None
