"""Stutter: one word or one sign, said again and again, as an engine does that lost its context.

`!!!!!!!!` is what the first token of many vocabularies looks like, and so what scores of NaN say.
"""

from __future__ import annotations

import re

from fleetctl.trial.soup import without_code

_WORD = re.compile(r"\b([^\W\d_]{2,})\b(?:[^\w]{1,3}\1\b)+", re.IGNORECASE)
# what people draw lines, tables and leaders with is no sign, and a digit may fill a number
_SIGN = re.compile(
    r"([^\w\s\-=.*~#+|/\\_<>^:,'`\u00b7\u2010-\u2015\u2022\u2026\u2500-\u25ff])(?:[ \t]?\1)+"
)


def is_stutter(text: str, *, words: int, signs: int, share: float) -> bool:
    """Whether runs of one word or sign make up too much of a text.

    Args:
        text: all of a reply's content; code between back-quotes is left out.
        words: length from which a run of one word counts.
        signs: the same for a sign.
        share: of the text's characters (white space not counted) that such runs must make up.
    """
    prose = without_code(text)
    runs = [run[0] for run in _WORD.finditer(prose) if _times(run) >= words]
    runs += [run[0] for run in _SIGN.finditer(prose) if run[0].count(run[1]) >= signs]
    return bool(runs) and sum(map(_dense, runs)) >= share * _dense(prose)


def _times(run: re.Match[str]) -> int:
    return len(re.findall(r"[^\W\d_]+", run[0]))


def _dense(text: str) -> int:
    return sum(not char.isspace() for char in text)
