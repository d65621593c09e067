"""Hold a host while we live: a lease renewed from a thread, noticed at once when it is lost."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

from fleetctl.errors import FleetError, HostError, InputError, LeaseHeld, NotRestored
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.plan.planner import Plan
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.outcome import Restored

# a renewal may be lost twice before the host restores itself
_RENEWALS_PER_LEASE = 4.0
_DEADMAN_S = 5.0


class LeaseKeeper:
    """A lease on one host and unit, renewed until `release` or the death of this process.

    Use as a context manager: leaving it restores what is open and gives the lease back.

    Attributes:
        restored: what leaving restored; None while held, or when the lease was kept or lost.
    """

    def __init__(
        self, agent: Agent, *, run_id: str, holder: str, purpose: str, unit: str, length_s: float
    ) -> None:
        self.request = LeaseRequest(new_id(), run_id, holder, purpose, unit, length_s)
        self.restored: Restored | None = None
        self._agent = agent
        self._ended = threading.Event()
        self._lost: FleetError | None = None
        self._transaction = ""
        self._kept = False
        self._thread = threading.Thread(target=self._renew, name=f"lease {unit}", daemon=True)

    def __enter__(self) -> Self:
        """Take the lease; raises LeaseHeld with the holder's name when it is taken."""
        self._agent.acquire(self.request)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore and release; renewals go on until the host is back."""
        try:
            if self._lost is not None:
                self._wait_for_dead_man()
            elif not self._kept:
                self.restored = self._release()
        finally:
            self.end_renewals()

    def switch(self, plan: Plan, *, within: tuple[str, ...]) -> None:
        """Bring the host to a plan made from the host as found; what was on it goes back first.

        Raises:
            DriftError: the host is no longer as it was found; nothing was applied.
            ApplyFailed: a step failed and was undone.
            RestoreConflict: somebody changed a file of ours meanwhile.
        """
        transaction = new_id()
        before, self._transaction = self._transaction, transaction
        self._agent.apply(
            self.request, transaction, plan.steps, plan.blobs, within=within, replaces=before
        )

    def keep(self, agent: Agent) -> None:
        """Let the change stay, through a new connection: that it can be made is part of the proof.

        Raises:
            ApplyFailed: the dead-man was first and the host has been restored.
        """
        self.end_renewals()
        agent.commit(self.request.id, transaction=self._transaction)
        self._kept = True

    def _wait_for_dead_man(self) -> None:
        """Let the host finish what it restores by itself: its lock is waited for."""
        with contextlib.suppress(HostError, InputError):
            # InputError: the dead-man was through already, and nothing of the run is held
            self._agent.restore(run_id=self.request.run_id)

    def _release(self) -> Restored:
        try:
            return self._agent.release(self.request.id)
        except HostError as error:
            raise NotRestored(
                f"{self._agent.transport.host_name} can't be reached to restore it",
                why=f"{error}; it restores itself when its lease ends, "
                f"within {self.request.length_s + _DEADMAN_S:.0f} s",
                next_step=f"`fleetctl status --host {self._agent.transport.host_name}` in a minute",
            ) from error

    def check(self) -> None:
        """Raise when the host has taken the lease back: what runs there is no longer ours."""
        if self._lost is not None:
            raise self._lost

    def end_renewals(self) -> None:
        """Stop renewing: the lease was given back, or is left to end by itself."""
        self._ended.set()
        self._thread.join(timeout=30.0)

    def _renew(self) -> None:
        length_s = self.request.length_s
        while not self._ended.wait(length_s / _RENEWALS_PER_LEASE):
            try:
                self._agent.renew(self.request.id, length_s=length_s)
            except LeaseHeld as lost:
                if not self._ended.is_set():
                    self._lost = lost
                return
            except HostError:
                # unreachable is not lost: the host decides, and the next renewal will tell
                continue
