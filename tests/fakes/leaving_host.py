"""A host that can fall silent: its agent in memory, and a connection that counts its losses."""

from types import SimpleNamespace

from fleetctl.errors import ApplyFailed, HostUnreachable, InputError, LeaseHeld
from fleetctl.host.unlock_note import UnlockNote


class LeavingHost:
    """A host as a run reaches it; it is its own agent.

    Attributes:
        silent: it does not answer.
        lease: id of the lease it grants, or none.
        ending: id of a lease that is over, while the host restores itself.
        changes: transactions that stand on it, with the lease of each; empty for a kept one.
        said: what it was asked, in order.
        answers_lost: how many further answers to `commit` do not arrive.
    """

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.host = SimpleNamespace(unit=f"{name}.service")
        self.agent = self
        self.transport = SimpleNamespace(times_lost=0, close=lambda: None)
        self.silent = False
        self.lease: str | None = None
        self.ending = ""
        self.taken_by = ""
        self.changes: dict[str, str] = {}
        self.said: list[str] = []
        self.answers_lost = 0
        self.refuses_commit = False
        self._notes: dict[str, UnlockNote] = {}

    @property
    def kept(self) -> list[str]:
        """The transactions that were committed."""
        return [transaction for transaction, lease in self.changes.items() if not lease]

    def leave(self, *, restores_itself: bool = True) -> None:
        """Fall silent, for longer than the lease lasts."""
        self.silent = True
        self.transport.times_lost += 1
        if restores_itself:
            self._end_lease()

    def unlock(self, lease, *, by) -> None:
        """Be unlocked by somebody who reaches the host, also where we do not."""
        assert lease == self.lease
        self._notes[lease] = UnlockNote(by, 0.0)
        self._end_lease()

    def acquire(self, request) -> None:
        self._hear("acquire")
        if self.taken_by:
            raise LeaseHeld(f"{self.name} is held by {self.taken_by}", why="", next_step="wait")
        self.lease = request.id

    def apply(self, lease, transaction, _steps, _blobs, *, within, replaces) -> None:
        self._hear("apply")
        self.changes.pop(replaces, None)
        self.changes[transaction] = lease.id

    def renew(self, lease, *, length_s) -> None:
        self._hear("renew")
        if lease != self.lease:
            raise LeaseHeld("the lease is gone", why="", next_step="")

    def release(self, lease) -> None:
        self._hear("release")
        if lease == self.lease:
            self._end_lease()

    def status(self):
        self._hear("status")
        ids = [self.ending] * bool(self.ending) + ["another's"] * bool(self.taken_by)
        leases = tuple(
            SimpleNamespace(lease=SimpleNamespace(id=lease, unit=self.host.unit)) for lease in ids
        )
        held = tuple(SimpleNamespace(id=transaction) for transaction in self.changes)
        return SimpleNamespace(leases=leases, transactions=held)

    def unlocked(self, lease):
        self._hear("unlocked")
        return self._notes.get(lease)

    def restore(self, *, transaction) -> None:
        self._hear("restore")
        if transaction not in self.changes:
            raise InputError("nothing of it is held", why="", next_step="")
        del self.changes[transaction]

    def commit(self, lease, *, transaction) -> None:
        self._hear("commit")
        if self.refuses_commit:
            raise ApplyFailed("the change was not kept", why="too late", next_step="anew")
        if lease == self.lease:
            self.lease = None
            self.changes[transaction] = ""
        if self.answers_lost:
            self.answers_lost -= 1
            raise HostUnreachable(f"{self.name} fell silent", why="", next_step="")

    def _end_lease(self) -> None:
        """End the lease; what is open under it goes back first."""
        self.changes = {t: lease for t, lease in self.changes.items() if lease != self.lease}
        self.lease = None

    def _hear(self, question: str) -> None:
        self.said.append(question)
        if self.silent:
            raise HostUnreachable(f"cannot reach {self.name}", why="", next_step="")
