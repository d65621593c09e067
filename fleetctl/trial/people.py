"""The line people know: `CORRUPTION sessions: 2/40 = 5%  (leak=2 no_tool=0 error=0 ok-ish…=38)`.

Where failures are counted it begins with `FAILED sessions:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from fleetctl.spec.metric import Metric
from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.metric import FINE

_ALWAYS = (OutcomeClass.LEAK, OutcomeClass.NO_TOOL, OutcomeClass.ERROR)
NOT_AS_ASKED = (OutcomeClass.NO_TOOL, OutcomeClass.NO_ANSWER)  # which a model may do by itself
_LINE = re.compile(
    r"CORRUPTION sessions:\s*(?P<bad>\d+)\s*/\s*(?P<of>\d+)(?:\s*=\s*(?:[\d.]+\s*%|n/a))?"
    r"(?:\s*\((?P<parts>[^)]*)\))?(?:\s+infra=(?P<infra>\d+))?"
)
HEADS: Mapping[Metric, str] = {"corruption": "CORRUPTION", "failures": "FAILED"}
_PART = re.compile(r"(?P<name>[\w-]+)(?:\[[^\]]*\])?=(?P<count>\d+)")


@dataclass(frozen=True)
class PeoplesLine:
    """What the line says.

    Attributes:
        corrupted: sessions counted as corrupt.
        sessions: sessions that count.
        parts: the counts in brackets, by the name they were given, and infra beside them.
    """

    corrupted: int
    sessions: int
    parts: Mapping[str, int]


def peoples_line(
    bad: int, counted: int, counts: Mapping[OutcomeClass, int], metric: Metric = "corruption"
) -> str:
    """Return the line; classes beyond the four familiar ones appear when they occurred.

    The counts in brackets, without infra, add up to the sessions that count.

    Args:
        bad: sessions that the metric counts as bad.
        counted: sessions that count.
        counts: every class.
        metric: what is counted: the first word says it.
    """
    share = _share(bad, counted)
    known = {*_ALWAYS, *FINE, OutcomeClass.INFRA}
    more = [outcome for outcome in OutcomeClass if outcome not in known and counts.get(outcome)]
    named = " ".join(f"{outcome}={counts.get(outcome, 0)}" for outcome in (*_ALWAYS, *more))
    fine = sum(counts.get(outcome, 0) for outcome in FINE)
    infra = counts.get(OutcomeClass.INFRA, 0)
    beside = f"  infra={infra} (not counted)" if infra else ""
    return (
        f"{HEADS[metric]} sessions: {bad}/{counted} = {share}"
        f"  ({named} ok-ish[done/maxrounds]={fine}){beside}"
    )


def _share(bad: int, counted: int) -> str:
    """Return the share in percent; a few of many are never 0 %, and not quite all never 100 %."""
    if not counted:
        return "n/a"
    exact = Decimal(100 * bad) / Decimal(counted)
    near = min(exact, 100 - exact)
    places = max(1, 1 - near.adjusted()) if 0 < near < 1 else 1
    text = f"{exact:.{places}f}"
    return f"{text.rstrip('0').rstrip('.')}%"


def parse_peoples_line(text: str) -> PeoplesLine | None:
    """Return the last such line of a program's output, or None when there is none."""
    lines = list(_LINE.finditer(text))
    if not lines:
        return None
    found = lines[-1]
    parts = {part["name"]: int(part["count"]) for part in _PART.finditer(found["parts"] or "")}
    if found["infra"]:
        parts[OutcomeClass.INFRA] = int(found["infra"])
    return PeoplesLine(int(found["bad"]), int(found["of"]), parts)
