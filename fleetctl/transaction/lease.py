"""Who works on a host and a unit, until when.

A lease, not a lock: it ends by itself, and when it ends the host restores itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
MAX_LEASE_S = 7 * 24 * 3600.0


class BadLease(ValueError):
    """A lease that no host should grant."""


@dataclass(frozen=True)
class LeaseRequest:
    """What a controller asks for.

    Attributes:
        id: chosen by the controller, unique (`new_id` of the client), so that a request
            whose answer was lost may be repeated.
        run_id: the run it belongs to.
        holder: `user@machine`.
        purpose: one clause for people, such as the experiment's name.
        unit: the systemd unit; empty for a change that concerns none.
        length_s: how long the host waits for a renewal before it restores itself.
    """

    id: str
    run_id: str
    holder: str
    purpose: str
    unit: str
    length_s: float

    def __post_init__(self) -> None:
        for name in (self.id, self.run_id):
            if not IDENTIFIER.fullmatch(name):
                raise BadLease(f"not an identifier: {name!r}")
        check_length(self.length_s)


@dataclass(frozen=True)
class Lease:
    """What the host granted; times are the host's wall clock, for people.

    The host itself measures expiry on a clock that never jumps.
    """

    id: str
    run_id: str
    holder: str
    purpose: str
    unit: str
    since_s: float
    until_s: float


def check_length(length_s: float) -> None:
    """Refuse a lease that would end at once, or never.

    Raises:
        BadLease: it would.
    """
    if not 1 <= length_s <= MAX_LEASE_S:
        raise BadLease(f"a lease lasts 1 s to 7 days, not {length_s} s")


def grant(request: LeaseRequest, now_s: float) -> Lease:
    """Return the lease that a host grants at `now_s` of its wall clock."""
    return Lease(
        id=request.id,
        run_id=request.run_id,
        holder=request.holder,
        purpose=request.purpose,
        unit=request.unit,
        since_s=now_s,
        until_s=now_s + request.length_s,
    )
