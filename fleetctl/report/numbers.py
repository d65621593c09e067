"""How numbers are spelled for people; the only place that rounds."""

from __future__ import annotations

from decimal import Decimal

from fleetctl.analysis.counts import Interval

UNKNOWN = "n/a"
_MOST_PLACES = 6


def percent(share: float | None) -> str:
    """Return 0.075 as 7.5%; two digits below 1 %; n/a for what is unknown."""
    if share is None:
        return UNKNOWN
    value = Decimal(100 * share)
    distance = min(abs(value), abs(100 - value)) if value else Decimal(0)
    # what is not quite all keeps the digits that say so, like what is not quite nothing
    if 0 < distance < (1 if abs(value) < 1 else Decimal("0.05")):
        places = 1 - distance.adjusted()
        text = f"{value:.{places}f}".rstrip("0").rstrip(".")
    else:
        text = f"{value:.1f}".removesuffix(".0")
    return f"{text}%"


def percents(interval: Interval | None) -> str:
    """Return an interval of rates."""
    if interval is None:
        return UNKNOWN
    return f"{percent(interval.low)} to {percent(interval.high)}"


def points(difference: float) -> str:
    """Return a difference of rates in points, with its sign; never 0.0 where there is one."""
    value = Decimal(100 * difference)
    places = 1 if value == 0 or abs(value) >= Decimal("0.05") else -value.adjusted()
    return f"{value:+.{min(places, _MOST_PLACES)}f}"


def points_interval(interval: Interval | None) -> str:
    """Return an interval of differences in percentage points."""
    if interval is None:
        return UNKNOWN
    return f"{points(interval.low)} to {points(interval.high)} points"


def p_value(p: float | None) -> str:
    """Return a p with two digits that count; more near 0.05, where they could hide the side."""
    if p is None:
        return UNKNOWN
    if p < 0.001:
        return "< 0.001"
    digits = 2 if p >= 0.1 else 3 if p >= 0.01 else 4
    return f"= {p:.4f}" if 0.045 <= p < 0.055 else f"= {p:.{digits}f}"


def level_text(level: float) -> str:
    """Return what a p must fall below."""
    return f"{level:.3g}"


def p_beside(p: float, level: float) -> str:
    """Return a p with as many digits as show on which side of a level it lies."""
    text, limit = p_value(p), Decimal(level_text(level))
    for digits in range(2, 12):
        number = text.removeprefix("= ")
        is_shown = text.startswith("=") and (Decimal(number) < limit) == (p < level)
        if is_shown or (text == "< 0.001" and p < level and limit >= Decimal("0.001")):
            break
        text = f"= {p:.{digits}g}"
    return text


def probability(p: float) -> str:
    """Return a probability; never a certainty."""
    if p > 0.999:
        return "> 99.9%"
    return "< 0.1%" if p < 0.001 else percent(p)


def amount(value: float | None, unit: str) -> str:
    """Return a number of a check in its unit."""
    if value is None:
        return UNKNOWN
    if unit in ("share", "rate", "ratio"):
        return percent(value)
    if unit == "p":
        return f"p {p_value(value)}"
    return f"{value:.3g} {unit}".rstrip()


def ratio(bad: int, sessions: int) -> str:
    """Return bad/sessions and the share, as people write it."""
    return f"{bad}/{sessions} = {percent(bad / sessions if sessions else None)}"


def host_time(minutes: float) -> str:
    """Return a time in minutes; in seconds below two of them, where rounding hides too much."""
    if minutes < 2:
        return count(round(60 * minutes), "second")
    return f"{minutes:.0f} minutes"


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
