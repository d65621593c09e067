"""One injected fault, what came of it, and how every fault ends: wait, compare, recover again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.site import GRACE_S, Look, Site


@dataclass(frozen=True)
class Fault:
    """One injected fault and what came of it.

    Attributes:
        kind: row of the table.
        detail: which one.
        site: the host.
        seconds: from the fault to the host being as before; None when it did not come back.
        allowed_s: what was left of the lease, plus five seconds.
        wrong: what was not as before; empty when all is well.
    """

    kind: str
    detail: str
    site: str
    seconds: float | None
    allowed_s: float
    wrong: tuple[str, ...]

    @property
    def is_lost(self) -> bool:
        """Whether the host is not as it was."""
        return self.seconds is None or bool(self.wrong)

    @property
    def is_late(self) -> bool:
        """Whether it took longer than the lease and five seconds."""
        return self.seconds is not None and self.seconds > self.allowed_s


@dataclass(frozen=True)
class Attempt:
    """A fault that is being injected.

    Attributes:
        kind: row of the table.
        site: the host.
        before: how it looked.
        dice: seeded; decides moments.
    """

    kind: str
    site: Site
    before: Look
    dice: random.Random

    def ended(
        self, detail: str, *, since_s: float, left_s: float, more_wrong: tuple[str, ...] = ()
    ) -> Fault:
        """Wait for the host to be back, check it, recover once more, and say how it went.

        Args:
            detail: which fault of this kind.
            since_s: monotonic moment from which the host could have come back.
            left_s: what the host may wait before it restores itself.
            more_wrong: what was found wrong already.
        """
        limit_s = left_s + GRACE_S
        seconds, wrong = self.site.wait_restored(self.before, since_s=since_s, limit_s=limit_s + 30)
        if not wrong:
            wrong = self.site.second_recovery_changes_nothing()
        return Fault(self.kind, detail, self.site.name, seconds, limit_s, (*more_wrong, *wrong))


Kind = Callable[[Attempt], Fault]


def now_s() -> float:
    """Return monotonic seconds."""
    return time.monotonic()
