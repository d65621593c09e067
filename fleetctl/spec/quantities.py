"""Durations, sizes and shares as people write them: "5s", "30m", "2 GiB", "1%"."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from fleetctl.spec.limits import MOST_ARGUMENT_BYTES
from fleetctl.transaction.lease import check_length

_DURATION_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LONGEST_S = 366 * 86400.0
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]+)\Z")


def duration_s(text: object) -> float:
    """Return the seconds of a duration such as "5s", "1.5m", "200ms" or "2h".

    Raises:
        ValueError: not such a text; a bare number is refused because its unit is unknown.
    """
    match = _AMOUNT.match(text.strip()) if isinstance(text, str) else None
    if match is None or match[2] not in _DURATION_S:
        raise ValueError('expected a duration with its unit, such as "5s", "30m" or "200ms"')
    length_s = float(match[1]) * _DURATION_S[match[2]]
    if length_s > _LONGEST_S:
        raise ValueError("a duration of more than a year is a mistake in its number or its unit")
    return length_s


def pause_s(length_s: float) -> float:
    """Return a pause between two questions.

    Raises:
        ValueError: it is none at all: that would ask without end.
    """
    if length_s == 0:
        raise ValueError('expected a pause between two questions, such as "1s", and not 0')
    return length_s


def some_s(length_s: float) -> float:
    """Return a limit of time.

    Raises:
        ValueError: it is none at all: what it limits would be over before it begins.
    """
    if length_s == 0:
        raise ValueError('expected some time, such as "30s", and not 0: nothing is done in none')
    return length_s


def lease_s(text: object) -> float:
    """Return the seconds of a lease, written as any duration.

    Raises:
        ValueError: not a duration, or one that no host would grant.
    """
    length_s = duration_s(text)
    try:
        check_length(length_s)
    except ValueError as refused:
        raise ValueError(
            f"{refused}: a host restores itself when we have not renewed it for that long; "
            'write "60s", or more for a slow network'
        ) from None
    return length_s


def open_share(number: float | None) -> float | None:
    """Return a share, or None.

    Raises:
        ValueError: it is 0 or 1.
    """
    if number in (0.0, 1.0):
        raise ValueError("lies between 0% and 100%, both excluded")
    return number


def without_nul(text: str) -> str:
    """Return a text that the system takes as an argument or a path.

    Raises:
        ValueError: it holds a NUL byte, or is longer than an argument may be.
    """
    if "\0" in text:
        raise ValueError("holds a NUL byte, which no argument or path can carry")
    if len(text.encode()) > MOST_ARGUMENT_BYTES:
        raise ValueError(f"is longer than {MOST_ARGUMENT_BYTES} bytes, the most that Linux passes")
    return text


def not_blank(text: str) -> str:
    """Return a text that says something.

    Raises:
        ValueError: it is empty or blank, or holds a NUL byte.
    """
    if not text.strip():
        raise ValueError("is empty, and should say something")
    return without_nul(text)


def one_line(text: str) -> str:
    """Return a text that one line of a log can hold.

    Raises:
        ValueError: it is empty, which every line holds, or longer than a line.
    """
    if "\n" in text or "\r" in text:
        raise ValueError("holds the end of a line, and is looked for in single lines")
    return not_blank(text)


def pattern(text: str) -> str:
    """Return a regular expression.

    Raises:
        ValueError: it is none, or it is empty.
    """
    try:
        re.compile(not_blank(text))
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


def share(value: object) -> float:
    """Return a share between 0 and 1 written as 0.01 or "1%".

    Raises:
        ValueError: not such a value, or out of range.
    """
    match = _AMOUNT.match(value.strip()) if isinstance(value, str) else None
    if match is not None and match[2] == "%":
        number = float(match[1]) / 100
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError('expected a share such as 0.01 or "1%"')
    if not 0 <= number <= 1:
        raise ValueError("a share lies between 0 and 1 (0% and 100%)")
    return number


def spell_duration(length_s: float) -> str:
    """Return a duration as people read it: 0.4 s, 12 s, 5 min, 1 h 30 min."""
    if length_s < 10:
        return f"{length_s:.1f} s"
    if length_s < 120:
        return f"{length_s:.0f} s"
    minutes = round(length_s / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


Duration = Annotated[float, BeforeValidator(duration_s)]
Limit = Annotated[Duration, AfterValidator(some_s)]
Lease = Annotated[float, BeforeValidator(lease_s)]
SystemText = Annotated[str, AfterValidator(without_nul)]
Said = Annotated[str, AfterValidator(not_blank)]
Line = Annotated[str, AfterValidator(one_line)]
Pattern = Annotated[str, AfterValidator(pattern)]
Share = Annotated[float, BeforeValidator(share)]
