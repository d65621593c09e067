"""A workload program that does not get going: no other try and no other arm mends that."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.errors import InputError
from fleetctl.spec.experiment import CommandSpec, Workload
from fleetctl.workflow.facts import TrialFacts

# what a shell, `env` and `nice` end with where there is no such program, or it may not be
# executed; and a shell, Python and most programs where script or arguments are not what they take
_CANT_RUN = (127, 126, 2)


def check_startable(workload: Workload) -> None:
    """Look for a workload's program on this machine before any host is changed for it.

    Raises:
        InputError: it can't be started.
    """
    if not isinstance(workload, CommandSpec) or shutil.which(workload.argv[0]) is not None:
        return
    program = workload.argv[0]
    where = "there is no such file that can be executed" if "/" in program else "it is not on PATH"
    raise InputError(
        f"the workload's program can't be started: {program}",
        why=where,
        next_step="check argv in [workload]; no shell is involved",
    )


def is_hopeless(tries: Sequence[TrialFacts]) -> bool:
    """Whether a trial and its repetition failed alike, and as a program does that can't run.

    Args:
        tries: of a program that nobody has ever seen at work.
    """
    ends = {(one.program_exit, one.void_because) for one in tries}
    return len(tries) > 1 and len(ends) == 1 and tries[0].program_exit in _CANT_RUN


def hopeless(tries: Sequence[TrialFacts], folder: Path, resume: str) -> InputError:
    """Return the error that ends a run whose program can't run.

    Args:
        tries: for which `is_hopeless` holds.
        folder: of the run.
        resume: the command that goes on with the run, where there is one.
    """
    last = tries[-1]
    later = f"; {resume} where only the program was missing" if resume else ""
    return InputError(
        "the workload's program does not get going, so nothing was measured",
        why=f"{last.void_because[0]}: {len(tries)} times alike, and it reported nothing; "
        "further trials would only restart the service",
        next_step=f"read {folder / last.trial / 'stderr.txt'}, mend argv in [workload], start a new"
        f" run{later}",
    )


@dataclass
class Tries:
    """Trials of a campaign's programs, from any of its sites; the first two that fail alike end it.

    Attributes:
        folder: as for `hopeless`.
        resume: likewise.
        given_up: why no further trial is worth a restart; None as long as one may be.
    """

    folder: Path
    resume: str
    given_up: InputError | None = field(default=None, init=False)
    _failed: dict[str, list[TrialFacts]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def after(self, facts: TrialFacts, was_measured: Callable[[], bool]) -> None:
        """Take a trial that was made.

        Args:
            facts: of the trial.
            was_measured: whether an earlier trial of this workload, by anybody, was counted.

        Raises:
            InputError: its program does not get going.
        """
        with self._lock:
            tries = self._failed.setdefault(facts.workload_sha256, [])
            if facts.program_exit is None:
                tries.clear()
                return
            tries.append(facts)
            # another site's trial may end while this one's end is told
            if not self.given_up and is_hopeless(tries[-2:]) and not was_measured():
                self.given_up = hopeless(tries[-2:], self.folder, self.resume)
                raise self.given_up
