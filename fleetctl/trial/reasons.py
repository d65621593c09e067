"""Why a file could not be understood, in words for people instead of Python's."""

from __future__ import annotations

import json


class Odd(ValueError):
    """Something stored is not what it has to be; the text says what, in words for people."""


def in_words(error: Exception) -> str:
    """Return why reading something failed: what `error` means to whoever wrote the file."""
    if isinstance(error, Odd):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or "it can't be read"
    if isinstance(error, json.JSONDecodeError):
        where = f"line {error.lineno}, column {error.colno}"
        return f"it is no JSON: nothing from {where} on can be read"
    if isinstance(error, UnicodeError):
        return "it is no UTF-8 text"
    if isinstance(error, RecursionError):
        return "it nests too deep"
    if isinstance(error, KeyError):
        return f"`{error.args[0]}` is missing"
    return "a value in it is of another kind than it has to be"
