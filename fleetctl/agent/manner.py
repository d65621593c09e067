"""How to bring a host back, and what became of it so far."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from fleetctl.transaction.outcome import Conflict, ProvenRestart, Restored


class OnConflict(enum.Enum):
    """What to do with a file that is no longer what fleetctl wrote."""

    REPORT = "report"
    """Leave it, keep the before-image, and leave the transaction open."""
    OVERWRITE = "overwrite"
    """Bring the before-image back."""
    KEEP = "keep"
    """Leave it and close the transaction."""


@dataclass(frozen=True)
class Manner:
    """How to revert.

    Attributes:
        why: for the journal.
        on_conflict: what a stranger's change means.
        at_boot: systemd is about to start the units itself.
    """

    why: str
    on_conflict: OnConflict = OnConflict.REPORT
    at_boot: bool = False


@dataclass
class Tally:
    """What happened so far."""

    files: list[str] = field(default_factory=list)
    restarts: list[ProvenRestart] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    changed: bool = False

    def restored(self, transaction: str, *, over: bool) -> Restored:
        """Return the answer; `over` says whether the transaction has ended."""
        return Restored(
            transactions=(transaction,) if over else (),
            files=tuple(self.files),
            restarts=tuple(self.restarts),
            stopped=tuple(self.stopped),
            conflicts=tuple(self.conflicts),
            problems=tuple(self.problems),
        )
