"""A workload program that does not get going: no other try and no other arm mends that."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.errors import InputError
from fleetctl.workflow.facts import TrialFacts

# what a shell, `env` and `nice` end with where there is no such program, or it may not be
# executed; and a shell, Python and most programs where script or arguments are not what they take
_CANT_RUN = (127, 126, 2)


def is_hopeless(tries: Sequence[TrialFacts]) -> bool:
    """Whether a trial and its repetition failed alike, and as a program does that can't run.

    Args:
        tries: of the first trial of a site, so that nobody has ever seen the program at work.
    """
    ends = {(one.program_exit, one.void_because) for one in tries}
    return len(tries) > 1 and len(ends) == 1 and tries[0].program_exit in _CANT_RUN


def hopeless(tries: Sequence[TrialFacts], resume: str) -> InputError:
    """Return the error that ends a run whose program can't run.

    Args:
        tries: for which `is_hopeless` holds.
        resume: the command that goes on with the run, where there is one.
    """
    last = tries[-1]
    later = f"; {resume} where only the program was missing" if resume else ""
    return InputError(
        "the workload's program does not get going, so nothing was measured",
        why=f"{last.void_because[0]}: {len(tries)} times alike, and it reported nothing; "
        "further trials would only restart the service",
        next_step=f"read {last.trial}/stderr.txt, mend argv in [workload], start a new run{later}",
    )
