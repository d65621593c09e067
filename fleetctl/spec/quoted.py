"""A text that people are shown: in one line, in double quotes, as TOML and JSON write it."""

from __future__ import annotations

import json


def quoted(text: str) -> str:
    """Return a text in quotes; what a terminal would act on, or not show, is escaped."""
    return f'"{"".join(_sign(sign) for sign in text)}"'


def _sign(sign: str) -> str:
    return sign if sign.isprintable() and sign not in '"\\' else json.dumps(sign)[1:-1]
