"""The agent's verbs as typed methods over any Transport.

Each verb is one channel: a small shell line finds the agent of this very fleetctl on the host by
its digest and runs it; where it is not there yet, a second channel ships it and runs it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fleetctl.errors import InputError, LeaseHeld, RemoteFailed
from fleetctl.host.bundle import agent_bundle
from fleetctl.host.transport import Completed, Transport
from fleetctl.host.unlock_note import STATE, UnlockNote, UnlockNotes
from fleetctl.transaction import frame, wire
from fleetctl.transaction.code import CodeQuery, CodeReport
from fleetctl.transaction.failure import decode_failure
from fleetctl.transaction.lease import Lease, LeaseRequest
from fleetctl.transaction.outcome import (
    Applied,
    Finding,
    Forgotten,
    Granted,
    Kept,
    Restored,
    StagedFile,
)
from fleetctl.transaction.snapshot import Observed, Query, Status, UnitReport
from fleetctl.transaction.step import RestartUnit, Step
from fleetctl.transaction.telemetry import LogSlice, Telemetry

T = TypeVar("T")

LAUNCH = f"""\
given=$4
{STATE}
agent=$state/agent/$1
if [ -O "$agent" ] && [ -f "$agent.pyz" ]; then exec "$2" -I -S "$agent" "$3" "$state"
elif [ -n "$6" ]; then exec "$2" -I -S -c "$6" "$agent" "$1" "$3" "$state"
else echo; echo "fleetctl-missing $5"; fi
"""


def new_id() -> str:
    """Return an identifier for a lease or a transaction that nobody can guess."""
    return secrets.token_hex(8)


class Agent:
    """The host's half of fleetctl, reached over one transport.

    All verbs raise children of `FleetError`: `HostError` when the host could not be asked
    (what it did is unknown then; ask `status` over a new connection), the classes of
    `fleetctl.transaction.failure` when it answered with a failure.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        python: str = "python3",
        state_dir: str = "",
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            transport: an open connection.
            python: interpreter (3.8 or newer) on the host that runs the agent.
            state_dir: where the host keeps its state; empty for $FLEETCTL_STATE, else
                /var/lib/fleetctl for root and ~/.local/state/fleetctl for others.
        """
        self._transport = transport
        self._python = python
        self._state_dir = state_dir

    @property
    def transport(self) -> Transport:
        """Return the connection, for what is not the agent's work."""
        return self._transport

    def observe(self, query: Query, *, deadline_s: float = 60.0) -> Observed:
        """Return what the host holds now, in one round trip."""
        return self._ask(Observed, "observe", {"query": query}, deadline_s=deadline_s)

    def check(
        self, files: Sequence[StagedFile], *, interpreter: str = "", deadline_s: float = 120.0
    ) -> tuple[Finding, ...]:
        """Return what the host says about files before they are deployed.

        Args:
            files: to be looked at, not changed.
            interpreter: the service's Python on the host; empty for the agent's own.
            deadline_s: for all of them.
        """
        request = {"files": tuple(files), "interpreter": interpreter}
        return self._ask(tuple, "check", request, deadline_s=deadline_s)

    def acquire(self, request: LeaseRequest, *, deadline_s: float = 30.0) -> Granted:
        """Take a lease and arm its dead-man, without changing anything.

        Raises:
            LeaseTaken: somebody else holds the unit; `.lease` says who.
        """
        return self._ask(Granted, "acquire", {"lease": request}, deadline_s=deadline_s)

    def apply(
        self,
        lease: LeaseRequest,
        transaction: str,
        steps: Sequence[Step],
        contents: Mapping[str, bytes],
        *,
        within: Sequence[str] = (),
        replaces: str = "",
        deadline_s: float | None = None,
    ) -> Applied:
        """Perform steps under a lease, or leave the host as it was.

        The lease is taken if this very one is not held yet. Repeating a call whose answer
        was lost returns the same answer without acting again.

        Args:
            lease: as for `acquire`.
            transaction: its id, from `new_id`.
            steps: in order; each path at most once.
            contents: bytes of the new files by sha256.
            within: directories that no step may leave, also not through a symlink.
            replaces: an earlier transaction of the same lease, which goes back first; its unit
                is restarted once, by the new steps.
            deadline_s: for the whole; by default as long as the steps may take.

        Raises:
            LeaseTaken: somebody else holds the unit, or a file of another open transaction.
            Drifted: the host differs from what the steps expect; nothing was changed.
            StepFailed: a step failed and everything was undone.
            NotBack: a step failed and the undo did, too.
            FilesInConflict: a step failed; undone except files that somebody changed.
        """
        request = {
            "lease": lease,
            "transaction": transaction,
            "steps": tuple(steps),
            "within": tuple(within),
            "replaces": replaces,
        }
        limit_s = deadline_s if deadline_s is not None else apply_deadline_s(steps)
        return self._ask(Applied, "apply", request, blobs=contents, deadline_s=limit_s)

    def renew(self, lease_id: str, *, length_s: float, deadline_s: float = 15.0) -> Lease:
        """Move the dead-man's deadline to `length_s` from now.

        Raises:
            LeaseHeld: the lease is gone (expired, released or unlocked); the host has
                restored itself.
        """
        request = {"lease_id": lease_id, "length_s": length_s}
        return self._ask(Lease, "renew", request, deadline_s=deadline_s)

    def commit(self, lease_id: str, *, transaction: str = "", deadline_s: float = 30.0) -> Kept:
        """Keep what was applied under a lease and release it; may be repeated.

        Call it over a new connection, after the service has proven ready.

        Args:
            lease_id: whose transactions to keep.
            transaction: one that must be among them, so that a late call is noticed.
            deadline_s: for the answer.

        Raises:
            ApplyFailed: the dead-man was first and the host has been restored.
        """
        request = {"lease_id": lease_id, "transaction": transaction}
        return self._ask(Kept, "commit", request, deadline_s=deadline_s)

    def restore(
        self,
        *,
        transaction: str = "",
        run_id: str = "",
        force: bool = False,
        hold: bool = False,
        deadline_s: float = 600.0,
    ) -> Restored:
        """Bring the host back: one transaction, those of a run, or all of them.

        Needs no local state and no lease of one's own.

        Args:
            transaction: only this one.
            run_id: only this run's.
            force: overwrite files that somebody changed with their before-images.
            hold: keep the lease, for the next arm of the same run.
            deadline_s: for the whole, with restarts.

        Raises:
            FilesInConflict: everything is back except files that somebody changed.
            NotBack: something could not be restored.
            InputError: there is no such transaction.
        """
        request = {
            "transaction": transaction,
            "run_id": run_id,
            "on_conflict": "overwrite" if force else "report",
            "hold": hold,
        }
        return self._ask(Restored, "restore", request, deadline_s=deadline_s)

    def release(self, lease_id: str, *, deadline_s: float = 600.0) -> Restored:
        """Give a lease back; what is still open under it is restored first."""
        return self._ask(Restored, "release", {"lease_id": lease_id}, deadline_s=deadline_s)

    def unit(
        self, unit: str, *, flags: Sequence[str] = (), log_lines: int = 20, deadline_s: float = 15.0
    ) -> UnitReport:
        """Return how a unit fares.

        Args:
            unit: full name.
            flags: names of environment variables to read from each of its processes.
            log_lines: how many of the last lines of this invocation.
            deadline_s: for the answer.
        """
        request = {"unit": unit, "flags": tuple(flags), "log_lines": log_lines}
        return self._ask(UnitReport, "unit", request, deadline_s=deadline_s)

    def code(self, query: CodeQuery, *, deadline_s: float = 120.0) -> CodeReport:
        """Return where a unit's own interpreters import modules from."""
        return self._ask(CodeReport, "code", {"query": query}, deadline_s=deadline_s)

    def log(self, unit: str, *, most_lines: int, deadline_s: float = 30.0) -> LogSlice:
        """Return the last lines of a unit's current invocation, with who wrote each."""
        request = {"unit": unit, "most_lines": most_lines}
        return self._ask(LogSlice, "log", request, deadline_s=deadline_s)

    def telemetry(self, *, since_s: float, deadline_s: float = 30.0) -> Telemetry:
        """Return what could disturb a trial; driver errors since `since_s` of the host's clock."""
        return self._ask(Telemetry, "telemetry", {"since_s": since_s}, deadline_s=deadline_s)

    def status(self, *, deadline_s: float = 15.0) -> Status:
        """Return everything that fleetctl holds on the host."""
        return self._ask(Status, "status", {}, deadline_s=deadline_s)

    def unlock(self, lease_id: str, *, by: str = "", deadline_s: float = 600.0) -> Restored:
        """End somebody else's lease: restore what is open under it, then free the unit.

        Args:
            lease_id: exactly.
            by: who does it, noted on the host for whoever held the lease; see `unlocked`.
            deadline_s: for the whole, with restarts.

        Raises:
            InputError: no lease has exactly this id.
        """
        notes = UnlockNotes(self._transport, self._state_dir)
        if by:  # before the lease ends, so that its holder never finds it gone without a reason
            notes.leave(lease_id, by)
        try:
            return self._ask(Restored, "unlock", {"lease_id": lease_id}, deadline_s=deadline_s)
        except (InputError, LeaseHeld):  # nothing was ended: there is none, or the host is busy
            if by:
                notes.drop(lease_id)
            raise

    def unlocked(self, lease_id: str) -> UnlockNote | None:
        """Return who ended a lease by hand; None when it ran out, or nobody noted it."""
        return UnlockNotes(self._transport, self._state_dir).read(lease_id)

    def settle(self, transaction: str, *, deadline_s: float = 60.0) -> Restored:
        """Close a transaction in conflict, leaving the changed files as somebody made them."""
        request = {
            "transaction": transaction,
            "run_id": "",
            "on_conflict": "keep",
            "hold": False,
        }
        return self._ask(Restored, "restore", request, deadline_s=deadline_s)

    def forget(self, *, deadline_s: float = 60.0) -> Forgotten:
        """Remove every trace of fleetctl from the host.

        Raises:
            LeaseHeld: something is still held; restore or unlock first.
        """
        return self._ask(Forgotten, "forget", {}, deadline_s=deadline_s)

    def _ask(
        self,
        answer: type[T],
        verb: str,
        request: Mapping[str, object],
        *,
        deadline_s: float,
        blobs: Mapping[str, bytes] | None = None,
    ) -> T:
        nonce = secrets.token_hex(16)
        sent = dict(blobs or {})
        header = {name: wire.encode(value, sent) for name, value in request.items()}
        message = frame.pack("request", nonce, header, sent)
        completed = self._launch(verb, nonce, message, deadline_s=deadline_s)
        if f"fleetctl-missing {nonce}".encode() in completed.stdout:
            completed = self._ship(verb, nonce, message, deadline_s=deadline_s)
        response = self._response(verb, nonce, completed)
        if "failure" in response.header:
            raise decode_failure(response.header["failure"], response.blobs)
        value: Any = wire.decode(response.header["answer"], response.blobs)
        if not isinstance(value, answer):
            raise self._garbled(verb, f"answered with {type(value).__name__}", completed)
        return value

    def _launch(self, verb: str, nonce: str, message: bytes, *, deadline_s: float) -> Completed:
        return self._run([verb, nonce, ""], message, deadline_s=deadline_s)

    def _ship(self, verb: str, nonce: str, message: bytes, *, deadline_s: float) -> Completed:
        bundle = agent_bundle()
        parcel = f"\nfleetctl-agent {len(bundle.content)}\n".encode() + bundle.content
        words = [verb, nonce, bundle.installer]
        return self._run(words, parcel + message, deadline_s=deadline_s)

    def _run(self, words: Sequence[str], stdin: bytes, *, deadline_s: float) -> Completed:
        verb, nonce, install = words
        digest = agent_bundle().digest
        shell = ["sh", "-c", LAUNCH, "fleetctl", digest, self._python, verb, self._state_dir]
        return self._transport.run([*shell, nonce, install], stdin=stdin, deadline_s=deadline_s)

    def _response(self, verb: str, nonce: str, completed: Completed) -> frame.Message:
        try:
            return frame.unpack("response", completed.stdout, nonce)
        except ValueError as error:
            raise self._garbled(verb, str(error), completed) from error

    def _garbled(self, verb: str, why: str, completed: Completed) -> RemoteFailed:
        said = completed.stderr.decode(errors="replace").strip().splitlines()[-3:]
        reason = " / ".join([*said, why, f"exit code {completed.exit_code}"])
        host = self._transport.host_name
        return RemoteFailed(
            f"the agent on {host} gave no answer to `{verb}`",
            why=reason,
            next_step=f"check that `{self._python}` on the host is Python 3.8 or newer",
        )


def apply_deadline_s(steps: Sequence[Step]) -> float:
    """Return how long steps may take: doing them, and undoing them all."""
    restarts = [step for step in steps if isinstance(step, RestartUnit)]
    return 60.0 + 2 * sum(step.stop_deadline_s + step.soak_s + 30.0 for step in restarts)
