"""Text made comparable: one spelling for what servers and tokenizers spell in many ways."""

from __future__ import annotations

import re
import unicodedata

_FOLD = str.maketrans(
    {
        "\u2581": "_",  # the blank of sentencepiece, as DeepSeek writes it inside its tokens
        "\u2016": "|",  # double vertical line
        "\u2223": "|",  # divides
        **dict.fromkeys(
            "\u2502\u2503\u2506\u2507\u250a\u250b\u254e\u254f\u2551", "|"
        ),  # box drawings
        **dict.fromkeys("\u2758\u2759\u275a\u23d0", "|"),  # light, medium, heavy bar; extension
        "\u2225": "|",  # parallel to
        "\u00a6": "|",  # broken bar
        "\u01c0": "|",  # dental click
        "\u01c1": "|",  # lateral click
        "\u200b": "",  # zero width space
        "\u200c": "",  # zero width non-joiner
        "\u200d": "",  # zero width joiner
        "\u2060": "",  # word joiner
        "\u00ad": "",  # soft hyphen
        **dict.fromkeys("\u200e\u200f\u061c", ""),  # marks of direction
        "\ufeff": "",  # byte order mark
    }
)
_BARS = re.compile(r"\|{2,}")
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]{1,200}`")


def fold(text: str) -> str:
    """Return the text under NFKC with one kind of bar, one bar in a row, and no zero-width marks.

    Fullwidth bars and brackets become ASCII by NFKC; the rest is ours.
    """
    if text.isascii():
        return _BARS.sub("|", text)
    return _BARS.sub("|", unicodedata.normalize("NFKC", text).translate(_FOLD))


def is_said(wanted: str, text: str) -> bool:
    """Return whether a text gives a value, by its letters and digits if it has any.

    Models write a hyphen as another dash, bold, or in spaces; each of them is an answer.
    """
    plain, within = _letters(wanted), _letters(text)
    return plain in within if plain else fold(wanted) in fold(text)


def _letters(text: str) -> str:
    return "".join(char for char in fold(text).casefold() if char.isalnum())


def split_code(text: str) -> tuple[str, str]:
    """Return the text outside code and the text inside code (fences and inline spans).

    A fence that is never closed reaches to the end, as in CommonMark.
    """
    inside: list[str] = []

    def take(match: re.Match[str]) -> str:
        inside.append(match.group())
        return "\n" if match.group().startswith(("`" * 3, "~~~")) else " "

    outside = _INLINE_CODE.sub(take, _FENCE.sub(take, text)) if _has_code(text) else text
    return outside, "\n".join(inside)


def _has_code(text: str) -> bool:
    return "`" in text or "~~~" in text
