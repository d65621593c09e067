"""What a metric counts, in a report's words: "corrupted" is never said of what only failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fleetctl.spec.metric import Metric


class Words(NamedTuple):
    """How counted sessions are called.

    Attributes:
        bad: of some sessions: "bad", "failed".
        are_bad: after a rate: 5% of sessions ….
        are_still: the same of what a change left.
        about: what is counted, for a report's head; empty where its lines say so anyway.
    """

    bad: str
    are_bad: str
    are_still: str
    about: str = ""


WORDS: Mapping[Metric, Words] = {
    "corruption": Words("bad", "are bad", "are still bad"),
    "failures": Words(
        "failed",
        "failed",
        "still fail",
        "counted as bad: failed sessions, all that did not end as asked (done, maxrounds);"
        " corrupted ones are among them, and so is what a model may do by itself (no_tool,"
        " no_answer)",
    ),
}


def about_metric(metric: Metric) -> list[str]:
    """Return what is counted, as one line of a report's head; none for corruption."""
    return [WORDS[metric].about] if WORDS[metric].about else []
