"""From what an arm or a build wants of one host, as found, to its plan: the one way for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleetctl.errors import FleetError
from fleetctl.plan.desired import Desired, FileGoal, with_as_found
from fleetctl.plan.patches import goals_of
from fleetctl.plan.planner import Plan, plan_host, sha256
from fleetctl.spec.arms import Arm
from fleetctl.spec.ready import Ready
from fleetctl.transaction.code import CodeReport
from fleetctl.transaction.outcome import Finding, StagedFile
from fleetctl.transaction.snapshot import PathState
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.observe import HostView


@dataclass(frozen=True)
class ArmPlanner:
    """What the plans of all arms of one host share.

    Attributes:
        touched: every path that any arm touches, and those above them, as found.
        as_found: content of every file that any arm touches; None where there is none.
        lent: directories of compiled kernels, lent in every arm, so that what one has compiled
            outlives the others' turns.
    """

    host: Reached
    view: HostView
    touched: Mapping[str, PathState]
    as_found: Mapping[str, bytes | None]
    lent: tuple[str, ...]
    ready: Ready

    def plan(self, arm: Arm, goals: Iterable[FileGoal]) -> tuple[Plan, dict[str, str]]:
        """Return the plan of an arm, and the sha256 of every file it has, by path.

        Raises:
            DriftError: a file to be changed is something else than a regular file.
        """
        files = with_as_found(goals, self.as_found)
        plan = plan_host(
            self.host.name,
            Desired(files, self.host.host.unit, _notes(arm, self.view), self.lent),
            self.touched,
            soak_s=self.ready.soak,
            stop_s=self.ready.stop,
            restart_always=True,
            gpu_idle_mib=self.ready.gpu_idle_mib,
        )
        return plan, {f.path: sha256(f.content) for f in files if f.content is not None}


def _notes(arm: Arm, view: HostView) -> tuple[str, ...]:
    unread = [r.name for r in view.code.readers if not r.files and r.name in arm.flags]
    return tuple(
        f"nothing in {', '.join(view.code.searched) or 'the tree'} reads {name}" for name in unread
    )


def patch_goals(
    host: Reached, arm: Arm, code: CodeReport, read: Callable[[str], bytes | None]
) -> list[FileGoal]:
    """Return the files that an arm's patches ask for.

    Args:
        host: where.
        arm: whose.
        code: where the service's interpreters import modules from.
        read: returns a file as found; None where there is none.
    """
    return [
        goal
        for content in arm.patches
        for goal in goals_of(host.name, host.host, content, code, read)
    ]


def check_distinct(
    host: str, arm: Arm, goals: Sequence[FileGoal], refused: type[FleetError]
) -> None:
    """Raise `refused` where two patches or flags of an arm ask for one file."""
    twice = [path for path, times in Counter(goal.path for goal in goals).items() if times > 1]
    if twice:
        raise refused(
            f"{arm.name} changes {twice[0]} twice on {host}",
            why=", and ".join(goal.why for goal in goals if goal.path == twice[0]),
            next_step="let one patch or flag change a file; nothing was changed",
        )


def findings_on(
    host: Reached, files: Iterable[tuple[str, bytes]], refused: type[FleetError]
) -> tuple[Finding, ...]:
    """Let a host look at new files with the service's interpreter and its own tools.

    Returns:
        What it says of files that may be deployed all the same.

    Raises:
        FleetError: of class `refused`, where a file must not be deployed.
    """
    staged = [StagedFile(path, content) for path, content in files]
    findings = host.agent.check(staged, interpreter=host.host.python) if staged else ()
    fatal = [finding for finding in findings if finding.fatal]
    if fatal:
        raise refused(
            f"{host.name} refuses {fatal[0].path}",
            why="\n       ".join(f"{finding.checked_by}: {finding.message}" for finding in fatal),
            next_step="mend the file; nothing was changed",
        )
    return tuple(findings)
