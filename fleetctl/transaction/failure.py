"""Failures that the agent reports with facts attached; the client raises the same classes.

LeaseHeld       <- LeaseTaken        .lease: who holds it
DriftError      <- Drifted           .paths: what differs from the plan
ApplyFailed     <- StepFailed        .step, .log_lines, .restored: the undo
NotRestored     <- NotBack           .restored: what is back and what is not
RestoreConflict <- FilesInConflict   .conflicts (with diffs), .restored
"""

from __future__ import annotations

from typing import Any, Mapping

from fleetctl import errors
from fleetctl.errors import ExitCode, FleetError
from fleetctl.transaction import wire
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.outcome import Conflict, Restored


class LeaseTaken(errors.LeaseHeld):
    """Somebody else works on this host and unit."""

    lease: Lease


class Drifted(errors.DriftError):
    """Files or units are no longer what the plan saw; nothing was applied."""

    paths: tuple[str, ...] = ()


class StepFailed(errors.ApplyFailed):
    """A step failed and everything was undone.

    Attributes:
        step: the step's line.
        log_lines: last lines of the unit, when it was a restart that failed.
        restored: how the undo ended.
    """

    step: str = ""
    log_lines: tuple[str, ...] = ()
    restored: Restored | None = None


class NotBack(errors.NotRestored):
    """Something could not be restored; the dead-man goes on trying."""

    restored: Restored | None = None


class FilesInConflict(errors.RestoreConflict):
    """Everything is back except files that somebody else changed."""

    conflicts: tuple[Conflict, ...] = ()
    restored: Restored | None = None


FACTS = ("lease", "paths", "step", "log_lines", "restored", "conflicts")


def with_facts(error: FleetError, **facts: object) -> FleetError:
    """Attach what a program may want to know; only names in `FACTS` travel."""
    for name, value in facts.items():
        setattr(error, name, value)
    return error


def _kind(name: str) -> type[FleetError]:
    """Return the class of a name; one that only the other side knows is a plain `FleetError`."""
    kind = globals().get(name) or vars(errors).get(name)
    return kind if isinstance(kind, type) and issubclass(kind, FleetError) else FleetError


def encode_failure(error: FleetError, blobs: dict[str, bytes]) -> dict[str, Any]:
    """Return an error as JSON data; a class of the agent's own travels as its nearest known one."""
    facts = {name: wire.encode(vars(error)[name], blobs) for name in FACTS if name in vars(error)}
    return {
        "kind": next(kind.__name__ for kind in type(error).__mro__ if _kind(kind.__name__) is kind),
        "what": error.what,
        "why": error.why,
        "next_step": error.next_step,
        "exit_code": int(error.exit_code),
        "facts": facts,
    }


def decode_failure(data: Mapping[str, Any], blobs: Mapping[str, bytes]) -> FleetError:
    """Return the error that `encode_failure` was given; an unknown kind is a `FleetError`."""
    error = _kind(str(data["kind"]))(
        str(data["what"]),
        why=str(data["why"]),
        next_step=str(data["next_step"]),
        exit_code=ExitCode(int(data["exit_code"])),
    )
    facts = {key: wire.decode(value, blobs) for key, value in data["facts"].items()}
    return with_facts(error, **{key: value for key, value in facts.items() if key in FACTS})
