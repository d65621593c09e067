"""How a value is written so that a reader gets exactly these bytes."""

from __future__ import annotations

import enum
import re


class Inside(enum.Enum):
    """What surrounds a text, and so how something is put into it."""

    SCRIPT = "the script"
    SINGLE_QUOTES = "single quotes"
    DOUBLE_QUOTES = "double quotes"
    HERE_DOCUMENT = "a here-document"
    ELSEWHERE = "another place"

    @property
    def is_editable(self) -> bool:
        """Say whether a text there can be edited."""
        return self is not Inside.ELSEWHERE

    def written(self, text: str) -> str:
        """Return what has to stand there so that the text at hand gets `text`."""
        if self is Inside.SINGLE_QUOTES:
            return text.replace("'", "'\\''")
        if self is Inside.DOUBLE_QUOTES:
            return re.sub(r'([\\"$`])', r"\\\1", text)
        return text


_BARE = re.compile(r"[A-Za-z0-9_./:,@%+=-]+")
_TAME = re.compile(r"[A-Za-z0-9_./:,@%+= -]*")


def needs_no_quotes(value: str) -> bool:
    """Say whether bash, dash and systemd read the text as it stands."""
    return _BARE.fullmatch(value) is not None


def shell_quoted(value: str) -> str:
    """Return a word that every POSIX shell reads as `value`: bare, else in single quotes."""
    if needs_no_quotes(value):
        return value
    return "'" + value.replace("'", "'\\''") + "'"


def quoted_like(value: str, old: str) -> str:
    """Quote as `old` was quoted, where that is safe for `value`; else as `shell_quoted` does.

    Data never goes between double quotes unless it has nothing that means something there.
    """
    for quote in ('"', "'"):
        wrapped = len(old) >= 2 and old[0] == old[-1] == quote and quote not in old[1:-1]
        if wrapped and _TAME.fullmatch(value):
            return f"{quote}{value}{quote}"
    return shell_quoted(value)


def file_quoted(value: str) -> str:
    r"""Return a value for an environment file that systemd and a shell read alike.

    Bare where possible, else in double quotes, where both undo the same four escapes: \\ \" \$ \`.
    """
    if needs_no_quotes(value):
        return value
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'


def unit_quoted(assignment: str) -> str:
    r"""Return NAME=value for `Environment=`: quoted, C-escaped, specifiers doubled.

    Source: systemd.exec(5), "Environment="; systemd.syntax(7), "Quoting".
    """
    escaped = assignment.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'
