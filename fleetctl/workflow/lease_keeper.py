"""Hold a host while we live: a lease renewed from a thread, noticed at once when it is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from fleetctl.errors import (
    ConnectionLost,
    FleetError,
    HostError,
    InputError,
    LeaseHeld,
)
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.plan.planner import Plan
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.lease_end import not_reached, taken_meanwhile, unlocked

# a renewal may be lost twice before the host restores itself
_RENEWALS_PER_LEASE = 4.0
# goes on while this machine sleeps, as the host's clock does
_AWAKE_OR_NOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Return seconds on a clock that nobody can set and that a closed lid does not stop."""
    return time.clock_gettime(_AWAKE_OR_NOT)


class LeaseKeeper:
    """A lease on one host and unit, renewed until the end of the block or of this process.

    Leaving the block restores what is open and gives the lease back. Where that fails, `left`
    says why, and `presence.bring_back_late` has to be called.

    Attributes:
        request: the lease that is held, or was held last.
        left: why the host could not be restored when the block was left; None when it was.
        is_silent: it could not be reached for that.
    """

    def __init__(
        self,
        host: Reached,
        *,
        run_id: str,
        holder: str,
        purpose: str,
        length_s: float,
        mark: str = "",
        elapsed: Callable[[], float] = elapsed_s,
    ) -> None:
        unit = host.host.unit
        # the end of every id: it tells a resumed run whose lease it finds
        self._mark = mark
        self.request = LeaseRequest(new_id() + mark, run_id, holder, purpose, unit, length_s)
        self.left: FleetError | None = None
        self.is_silent = False
        self._host = host
        self._elapsed = elapsed
        self._renewed_s = elapsed()
        self._losses_known = host.transport.times_lost
        self._ended = threading.Event()
        self._lost: FleetError | None = None
        self._lost_asleep = False
        # what may be open on the host through us, oldest first; no copy of the run has these ids
        self._begun: list[str] = []
        self._is_kept = False
        self._may_be_kept = False
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self._host.name

    @property
    def _agent(self) -> Agent:
        return self._host.agent

    @property
    def _newest(self) -> str:
        return self._begun[-1] if self._begun else ""

    def __enter__(self) -> Self:
        """Take the lease; raises LeaseHeld with the holder's name when it is taken."""
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore and release; renewals go on until the host is back. Never raises: see `left`."""
        if not self._is_kept:
            self.brings_back()
        self.end_renewals()

    def brings_back(self) -> bool:
        """Restore the host and say whether it answered; `left` says what is left to do."""
        self.left, self.is_silent = None, False
        try:
            self.bring_back()
        except HostError as silent:
            last, may_be_kept = self.request, self._may_be_kept
            self.left = not_reached(self.name, last, silent, may_be_kept=may_be_kept)
            self.is_silent = True
        except FleetError as failed:
            self.left = failed
        return not self.is_silent

    def switch(self, plan: Plan, *, within: tuple[str, ...]) -> None:
        """Bring the host to a plan made from the host as found; what was on it goes back first.

        Raises:
            DriftError: the host is no longer as it was found; nothing was applied.
            ApplyFailed: a step failed and was undone.
            RestoreConflict: somebody changed a file of ours meanwhile.
        """
        before, transaction = self._newest, new_id()
        self._begun.append(transaction)
        self._agent.apply(
            self.request, transaction, plan.steps, plan.blobs, within=within, replaces=before
        )

    def check(self) -> None:
        """Raise when what runs on the host may no longer be ours.

        Raises:
            ConnectionLost: the connection broke since the lease was taken or regained.
            LeaseHeld: the host has taken the lease back.
        """
        if self._lost is not None:
            raise self._lost
        if self.is_away:
            slept = "this machine slept, or could not renew the lease in its time"
            raise ConnectionLost(
                f"the connection to {self._host.name} broke",
                why="" if self._is_broken else slept,
                next_step=f"check that {self._host.name} is up, then `fleetctl status`",
            )

    def ask(self) -> None:
        """Learn at once whether the host still grants the lease; `check` raises what it says."""
        if self._lost is None:
            self._renew_once(self.request)

    @property
    def is_disturbed(self) -> bool:
        """Whether the lease or the connection was lost since the host was held (again)."""
        return self._lost is not None or self.is_away

    @property
    def is_away(self) -> bool:
        """Whether we and the host lost each other, so that a lost lease is nobody's wish.

        Either the connection broke, or this machine slept longer than the lease lasts.
        """
        # once a lease is lost nobody renews it, and time says nothing any more
        has_slept = self._has_slept() if self._lost is None else self._lost_asleep
        return self._is_broken or has_slept

    @property
    def _is_broken(self) -> bool:
        return self._host.transport.times_lost != self._losses_known

    def _has_slept(self) -> bool:
        return self._elapsed() - self._renewed_s > self.request.length_s

    def regain(self) -> None:
        """Bring the host back to as found and hold it anew, after we and it lost each other.

        Raises:
            HostError: it does not answer yet.
            LeaseHeld: somebody ended our lease by hand, or holds the host now; what this run had
                changed is restored.
            NotRestored, RestoreConflict: the host could not bring itself back.
        """
        losses = self._host.transport.times_lost
        ended = self.request
        self.bring_back()
        self._begun.clear()
        by_hand = self._unlocked(ended)
        if by_hand is not None:
            raise by_hand
        try:
            self._take()
        except LeaseHeld as taken:
            raise taken_meanwhile(self.name, taken) from taken
        self._losses_known = losses

    def bring_back(self) -> None:
        """Restore what we changed on the host, kept or not, and give the lease back.

        A copy of the run that has taken over meanwhile keeps what it holds.

        Raises:
            HostError: the host can't be asked.
            NotRestored, RestoreConflict: something is left to do.
        """
        self._agent.release(self.request.id)
        if self._lost is None and not self.is_away and not self._may_be_kept:
            return
        # the release has waited for the host's lock, so also for a dead-man that was at work
        held = {transaction.id for transaction in self._agent.status().transactions}
        for transaction in reversed(self._begun):
            if transaction in held:
                with contextlib.suppress(InputError):  # it was tidied away just now
                    self._agent.restore(transaction=transaction)

    def commit(self, agent: Agent) -> None:
        """Let the change stay; asked through a new connection, which is part of the proof.

        Raises:
            ApplyFailed: the dead-man was first and the host has been restored.
            HostError: no answer came; whether the change stays is unknown.
        """
        self.end_renewals()
        self._may_be_kept = True
        agent.commit(self.request.id, transaction=self._newest)
        self._is_kept = True

    def take_back(self) -> None:
        """Let a change that was committed be undone after all when the block is left."""
        self._is_kept = False

    def end_renewals(self) -> None:
        """Stop renewing: the lease was given back, or is left to end by itself."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=30.0)
            self._thread = None

    def _take(self) -> None:
        self.request = replace(self.request, id=new_id() + self._mark)
        began_s = self._elapsed()
        self._agent.acquire(self.request)
        self._renewed_s = began_s
        self._lost = None
        if self._thread is None:
            self._ended.clear()
            name = f"lease {self.request.unit}"
            self._thread = threading.Thread(target=self._renew, name=name, daemon=True)
            self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(self.request.length_s / _RENEWALS_PER_LEASE):
            if self._lost is None:
                self._renew_once(self.request)

    def _renew_once(self, request: LeaseRequest) -> None:
        began_s = self._elapsed()
        try:
            self._agent.renew(request.id, length_s=request.length_s)
        except LeaseHeld as lost:
            # by now it may have been given back on purpose, or another one taken
            if not self._ended.is_set() and request is self.request:
                self._lost_asleep = self._has_slept()
                self._lost = self._reason_of(request, lost)
        except HostError:
            # unreachable is not lost: the host decides, and the next renewal will tell
            return
        else:
            self._renewed_s = began_s

    def _reason_of(self, ended: LeaseRequest, lost: LeaseHeld) -> LeaseHeld:
        """Return why a lease is gone; what the host said at first, where no more can be known."""
        try:
            return self._unlocked(ended) or lost
        except HostError:
            return lost

    def _unlocked(self, ended: LeaseRequest) -> LeaseHeld | None:
        """Return the error that says who ended a lease by hand; None where nobody did."""
        note = self._agent.unlocked(ended.id)
        if note is None:
            return None
        leases = self._agent.status().leases
        # our own is still among them while the host restores itself
        others = [held.lease for held in leases if held.lease.id != ended.id]
        is_taken = any(lease.unit == ended.unit for lease in others)
        return unlocked(self.name, ended, note, is_taken=is_taken)
