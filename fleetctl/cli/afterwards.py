"""What fails after the hosts are back is no refusal: the exit code has to tell so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleetctl.errors import ExitCode, FleetError


@contextmanager
def after_the_hosts_are_back(next_step: str) -> Iterator[None]:
    """Let a failure of the block end with 4, and say how to go on from what was measured.

    A report that can't be written would end with 3 otherwise: "refused before any change".

    Args:
        next_step: what helps once the failure's own next step is done.
    """
    try:
        yield
    except FleetError as error:
        if error.exit_code is ExitCode.REFUSED:
            error.exit_code = ExitCode.FAILED_RESTORED
        error.next_step += f"; then {next_step}"
        raise
