"""A host that can fall silent: its agent in memory, and a connection that counts its losses."""

from types import SimpleNamespace

from fleetctl.errors import ApplyFailed, HostUnreachable, InputError, LeaseHeld


class LeavingHost:
    """A host as a run reaches it; it is its own agent.

    Attributes:
        silent: it does not answer.
        lease: id of the lease it grants, or none.
        kept: the run whose change it keeps.
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
        self.taken_by = ""
        self.kept = ""
        self.said: list[str] = []
        self.answers_lost = 0
        self.refuses_commit = False

    def leave(self, *, restores_itself: bool = True) -> None:
        """Fall silent, for longer than the lease lasts."""
        self.silent = True
        self.transport.times_lost += 1
        if restores_itself:
            self.lease = None

    def acquire(self, request) -> None:
        self._hear("acquire")
        if self.taken_by:
            raise LeaseHeld(f"{self.name} is held by {self.taken_by}", why="", next_step="wait")
        self.lease = request.id

    def renew(self, lease, *, length_s) -> None:
        self._hear("renew")
        if lease != self.lease:
            raise LeaseHeld("the lease is gone", why="", next_step="")

    def release(self, lease) -> None:
        self._hear("release")
        if lease == self.lease:
            self.lease = None

    def restore(self, *, run_id) -> None:
        self._hear("restore")
        if not self.kept:
            raise InputError("nothing of it is held", why="", next_step="")
        self.kept = ""

    def commit(self, lease, *, transaction) -> None:
        self._hear("commit")
        if self.refuses_commit:
            raise ApplyFailed("the change was not kept", why="too late", next_step="anew")
        if lease == self.lease:
            self.lease, self.kept = None, "run"
        if self.answers_lost:
            self.answers_lost -= 1
            raise HostUnreachable(f"{self.name} fell silent", why="", next_step="")

    def _hear(self, question: str) -> None:
        self.said.append(question)
        if self.silent:
            raise HostUnreachable(f"cannot reach {self.name}", why="", next_step="")
