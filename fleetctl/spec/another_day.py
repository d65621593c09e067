"""A control that was measured on another day, as counts."""

from __future__ import annotations

from pydantic import Field, model_validator

from fleetctl.spec.limits import MOST_SESSIONS
from fleetctl.spec.metric import Metric
from fleetctl.spec.value import Value


class History(Value):
    """A control that was measured on another day.

    Attributes:
        corrupted: corrupted sessions of that day, for metric = "corruption"; or
        failed: failed ones, for metric = "failures".
        sessions: all sessions of that day.
    """

    corrupted: int | None = Field(default=None, ge=0)
    failed: int | None = Field(default=None, ge=0)
    sessions: int = Field(gt=0, le=MOST_SESSIONS)

    @model_validator(mode="after")
    def _at_most_all(self) -> History:
        for name, bad in (("corrupted", self.corrupted), ("failed", self.failed)):
            if bad is not None and bad > self.sessions:
                raise ValueError(f"`{name}` can't exceed `sessions`")
        return self

    def bad(self, metric: Metric) -> int:
        """Return the bad sessions of that day; raises ValueError where they were not told."""
        name = {"corruption": "corrupted", "failures": "failed"}[metric]
        bad: int | None = getattr(self, name)
        if bad is None:
            raise ValueError(f'a control from another day needs `{name}` for metric = "{metric}"')
        return bad
