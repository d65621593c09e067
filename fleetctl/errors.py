"""One error type for people: what happened, why, and what to do next.

    FleetError                 exit code
    |-- InternalError          1   a bug of ours
    |-- InputError             3   a spec, inventory, argument or file is wrong; nothing was touched
    |   `-- EditRefused        3   an edit that could not be exact; carries a `code`
    |-- StoreError             3   a run's folder could not be written: disk full, no permission
    |-- QueueError             3   a campaign's queue could not be used: database away, no login
    |-- LabError               3   the lab could not do what was asked
    |-- HostError              3   a host could not be reached or would not talk
    |   |-- HostUnreachable    3   no TCP connection, or no SSH banner
    |   |-- HostKeyRejected    3   the key is unknown or has changed
    |   |-- LoginRefused       3   no key or password was accepted
    |   |-- SshConfigRefused   3   the SSH configuration asks for what this back end cannot do
    |   |-- ChannelRefused     3   sshd would open no further session
    |   |-- RemoteTimeout      3   the remote command outlived its deadline and was killed
    |   |-- ConnectionLost     3   the connection broke while it was in use
    |   `-- RemoteFailed       3   the remote program answered with a failure
    |-- LeaseHeld              3   somebody else is working on this host and unit
    |-- DriftError             3   the host is no longer what the plan was made for
    |-- ApplyFailed            4   a step failed on the host; it was undone
    |-- NotReady               4   the service did not become ready
    |-- NotProven              4   what runs is not what was asked for
    |-- NotRestored            5   a host is not back; the message says what is left to do
    |-- RestoreConflict        6   restored, except files that somebody else changed meanwhile
    `-- Interrupted          130   stopped by the operator

A failure after a change is raised with the exit code that tells the host's state:
`exit_code` may be overridden per error (`FAILED_RESTORED` or `FAILED_NOT_RESTORED`).
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a fleetctl process says when it ends; documented in docs/reference/exit-codes.md."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REFUSED = 3
    FAILED_RESTORED = 4
    FAILED_NOT_RESTORED = 5
    CONFLICT = 6
    INCONCLUSIVE = 7
    INVALID = 8
    UNEXPECTED_VERDICT = 9
    INTERRUPTED = 130


class FleetError(Exception):
    """What happened, why, and the next step.

    Attributes:
        what: one clause, lower case, no full stop.
        why: the fact behind it.
        next_step: a command or an action.
        exit_code: what the process ends with when nobody handles the error.
    """

    exit_code: ExitCode = ExitCode.REFUSED

    def __init__(
        self, what: str, *, why: str, next_step: str, exit_code: ExitCode | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what


class InternalError(FleetError):
    """A bug of ours."""

    exit_code = ExitCode.INTERNAL


class InputError(FleetError):
    """A spec, an inventory, an argument or a file is wrong; nothing was touched."""


class EditRefused(InputError):
    """An edit that could not be exact.

    Attributes:
        code: one word for programs, such as `ambiguous` or `readonly`.
        line: 1-based line in the file, where there is one.
    """

    def __init__(
        self, what: str, *, code: str, why: str, next_step: str, line: int | None = None
    ) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.code = code
        self.line = line


class StoreError(FleetError):
    """A run's folder could not be written: disk full, no permission, gone."""


class QueueError(FleetError):
    """The queue of a campaign could not be used; its workers' hosts restore themselves."""


class LabError(FleetError):
    """The lab could not do what was asked."""


class HostError(FleetError):
    """A host could not be reached or would not talk."""


class HostUnreachable(HostError):
    """No TCP connection, or no SSH banner."""


class HostKeyRejected(HostError):
    """The host key is unknown or has changed."""


class LoginRefused(HostError):
    """No key or password was accepted."""


class SshConfigRefused(HostError):
    """The SSH configuration asks for something this back end cannot do."""


class ChannelRefused(HostError):
    """Sshd would open no further session on this connection."""


class RemoteTimeout(HostError):
    """The remote command outlived its deadline; its process group was killed."""


class ConnectionLost(HostError):
    """The connection broke while it was in use; what the host did meanwhile is unknown."""


class RemoteFailed(HostError):
    """The remote program answered with a failure."""


class LeaseHeld(FleetError):
    """Somebody else is working on this host and unit."""


class DriftError(FleetError):
    """The host is no longer what the plan was made for; nothing was applied."""


class ApplyFailed(FleetError):
    """A step failed on the host; what had been done was undone."""

    exit_code = ExitCode.FAILED_RESTORED


class NotReady(FleetError):
    """The service did not become ready."""

    exit_code = ExitCode.FAILED_RESTORED


class NotProven(FleetError):
    """What runs is not what was asked for."""

    exit_code = ExitCode.FAILED_RESTORED


class NotRestored(FleetError):
    """A host is not back; the message says what is left to do."""

    exit_code = ExitCode.FAILED_NOT_RESTORED


class RestoreConflict(FleetError):
    """Restored, except files that somebody else changed meanwhile."""

    exit_code = ExitCode.CONFLICT


class Interrupted(FleetError):
    """Stopped by the operator."""

    exit_code = ExitCode.INTERRUPTED
