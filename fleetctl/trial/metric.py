"""Which sessions a metric counts as bad, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.spec.metric import Metric
from fleetctl.trial.classes import OutcomeClass, load_classes

FINE = (OutcomeClass.DONE, OutcomeClass.MAXROUNDS)
"""How a session ends that did what it was asked."""

CALLED: Mapping[Metric, str] = {"corruption": "corrupt", "failures": "failed"}
"""What a session is called that a metric counts."""


def is_bad(outcome: OutcomeClass, metric: Metric) -> bool:
    """Whether a metric counts a session of this class as bad."""
    classes = load_classes()
    if metric == "corruption":
        return outcome in classes.corrupt
    return outcome not in classes.uncounted and outcome not in FINE


def bad_sessions(
    metric: Metric, *, corrupted: int, counted: int, counts: Mapping[str, int]
) -> int | None:
    """Return how many sessions of a trial a metric counts as bad.

    None where nobody knows how many failed: the classes don't add up to the sessions that count.

    Args:
        metric: what counts.
        corrupted: sessions that the trial calls corrupt; a program may call further classes so.
        counted: sessions that say something about the model.
        counts: outcome class -> sessions; empty where only the corrupted ones were told.
    """
    if metric == "corruption":
        return corrupted
    told = sum(n for name, n in counts.items() if name not in load_classes().uncounted)
    failed = told - sum(counts.get(name, 0) for name in FINE)
    return failed if told == counted and failed >= corrupted else None
