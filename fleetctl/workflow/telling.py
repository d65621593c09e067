"""What is told in the same words everywhere: errors beside the one that ends a run, moments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from fleetctl.errors import ExitCode, FleetError, StoreError
from fleetctl.workflow.edges import Talk

E = TypeVar("E", bound=FleetError)

_GRAVITY = (
    ExitCode.INTERRUPTED,
    ExitCode.REFUSED,
    ExitCode.FAILED_RESTORED,
    ExitCode.CONFLICT,
    ExitCode.FAILED_NOT_RESTORED,
)


def gravity(error: FleetError) -> int:
    """Return how much an error outweighs others: an unrestored host most, an interruption least."""
    return _GRAVITY.index(error.exit_code) if error.exit_code in _GRAVITY else len(_GRAVITY)


def tell(talk: Talk, heading: str, error: FleetError) -> None:
    """Say what happened, why, and what to do next."""
    talk.say(f"{heading}: {error}")
    if error.next_step:
        talk.say(f"  hint: {error.next_step}")


def gravest_of(talk: Talk, errors: Sequence[E]) -> E:
    """Return the gravest error, the first of equals; the others are told."""
    gravest = max(errors, key=lambda error: (gravity(error), -errors.index(error)))
    for error in errors:
        if error is not gravest and error.exit_code is not ExitCode.INTERRUPTED:
            tell(talk, "also failed", error)
    return gravest


def utc(at_s: float) -> str:
    """Return a moment for people in any time zone."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def machine_failed(error: OSError, *, resume: str) -> StoreError:
    """Return what to say where this machine, not a host, could not go on.

    Args:
        error: what its system said, such as that the disk is full.
        resume: the command that goes on afterwards.
    """
    return StoreError(
        "this machine could not go on with the run",
        why=in_words_of(error),
        next_step=f"see that its disk has room, then go on with {resume}",
    )


def in_words_of(error: OSError) -> str:
    """Return what the system said, and of which file."""
    said = error.strerror or str(error)
    return f"{said}: {error.filename}" if error.filename else said
