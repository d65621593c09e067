"""What is said of a lease that ended before its time: by hand, to somebody else, or unseen."""

from __future__ import annotations

from fleetctl.errors import ExitCode, HostError, LeaseHeld, NotRestored
from fleetctl.host.unlock_note import UnlockNote
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.workflow.telling import utc

_DEADMAN_S = 5.0


def unlocked(host: str, ended: LeaseRequest, note: UnlockNote, *, is_taken: bool) -> LeaseHeld:
    """Return the error that says who ended a lease by hand.

    Args:
        host: its name in the inventory.
        ended: the lease.
        note: that was left on the host.
        is_taken: somebody works on the unit by now: how the host is, is theirs to say.
    """
    return LeaseHeld(
        f"{note.by} unlocked {host}",
        why=f"at {utc(note.at_s)}; lease {ended.id} did not run out, and what run {ended.run_id} "
        "had changed was restored first",
        next_step=f"talk to {note.by}; `fleetctl status --host {host}` shows who works there now",
        exit_code=ExitCode.FAILED_RESTORED if is_taken else None,
    )


def taken_meanwhile(host: str, taken: LeaseHeld) -> LeaseHeld:
    """Return the error for a host that could not be held anew, after it had been brought back."""
    return LeaseHeld(
        f"{host} was taken while it was away",
        why=f"{taken}; what this run had changed on it was restored before",
        next_step=taken.next_step,
        exit_code=ExitCode.FAILED_RESTORED,
    )


def not_reached(
    host: str, last: LeaseRequest, error: HostError, *, may_be_kept: bool
) -> NotRestored:
    """Return the error for a host that could not be asked to restore itself.

    Args:
        host: its name in the inventory.
        last: the lease that was held last.
        error: why it can't be asked.
        may_be_kept: a commit was asked for, and whether it came to that is unknown.
    """
    undo = f"; if the change was kept there, `fleetctl rollback {last.run_id}` undoes it"
    return NotRestored(
        f"{host} can't be reached to restore it",
        why=f"{error}; it restores itself when its lease ends, "
        f"within {last.length_s + _DEADMAN_S:.0f} s",
        next_step=f"`fleetctl status --host {host}` when it answers again"
        + (undo if may_be_kept else ""),
        exit_code=ExitCode.FAILED_NOT_RESTORED,
    )
