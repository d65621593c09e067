"""A held site as it was found: builds are planned from it one by one, whatever stands on it now.

A search does not know beforehand which builds it will ask for. What it plans from (files, flags'
sources) is therefore read before the first change and kept, and a path that a later build is the
first to touch is read then: no earlier build has changed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.environment.planned import plan_edits
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import Sources
from fleetctl.errors import DriftError
from fleetctl.plan.desired import Desired, FileGoal, with_as_found
from fleetctl.plan.patches import goals_of, target_paths
from fleetctl.plan.planner import content_of, plan_host, sha256
from fleetctl.spec.arms import Arm
from fleetctl.transaction.outcome import StagedFile
from fleetctl.transaction.snapshot import PathState
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.flags import sources_of
from fleetctl.workflow.observe import code_query, look
from fleetctl.workflow.prepare import HostPlan


@dataclass(frozen=True)
class Build:
    """One build of a search.

    Attributes:
        arm: what the hosts have to be; its name is the build's.
        absent: paths below the host's tree where nothing may lie as found.
    """

    arm: Arm
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ground:
    """A held site with what its flags come from, host by host, as found."""

    held: HeldSite
    sources: tuple[Sources, ...]

    @classmethod
    def of(cls, held: HeldSite) -> Ground:
        """Return the ground of a site on which nothing has been changed yet."""
        return cls(
            held, tuple(sources_of(host.reached, host.view.unit) for host in held.plan.hosts)
        )

    def add(self, build: Build) -> None:
        """Plan a build on every host of the site, unless that was done before.

        Raises:
            DriftError: it can't be built on what was found; nothing was changed.
            EditRefused: a flag can't be set exactly.
        """
        plan = self.held.plan
        if build.arm.name in plan.arms:
            return
        arms = {**plan.arms, build.arm.name: build.arm}
        hosts = tuple(
            self._planned(host, sources, build, tuple(arms.values()))
            for host, sources in zip(plan.hosts, self.sources, strict=True)
        )
        self.held.plan = replace(plan, arms=arms, hosts=hosts)
        self.held.prepared = [
            replace(one, plans=host.plans, arms=arms, wanted=host.wanted, within=host.within)
            for one, host in zip(self.held.prepared, hosts, strict=True)
        ]

    def _planned(
        self, host: HostPlan, sources: Sources, build: Build, arms: tuple[Arm, ...]
    ) -> HostPlan:
        """Return a host's plan with one more build, which the host has looked at."""
        code = host.reached.agent.code(code_query(host.reached, arms))
        host = replace(host, view=replace(host.view, code=code))
        flags = _flag_goals(host.reached.name, build.arm, sources)
        host = _touching(host, [*_patched(host, build.arm), *(goal.path for goal in flags)])
        _check_absent(host, build)
        goals = [*_patch_goals(host, build.arm), *flags]
        _check_distinct(host.reached.name, build.arm, goals)
        files = with_as_found(goals, _found_files(host.touched))
        ready = self.held.job.ready
        plan = plan_host(
            host.reached.name,
            Desired(files, host.reached.host.unit),
            host.touched,
            soak_s=ready.soak,
            stop_s=ready.stop,
            restart_always=True,
        )
        _check_on_host(host, {c.path: c.after for c in plan.changes if c.after is not None})
        wanted = {f.path: sha256(f.content) for f in files if f.content is not None}
        return replace(
            host,
            plans={**host.plans, build.arm.name: plan},
            wanted={**host.wanted, build.arm.name: wanted},
        )


def _flag_goals(host_name: str, arm: Arm, sources: Sources) -> tuple[FileGoal, ...]:
    if not arm.flags:
        return ()
    edits = plan_edits(sources, arm.flags, system_parser())
    return tuple(FileGoal(e.path, e.new, f"{e.means}: {e.why} on {host_name}") for e in edits)


def _patched(host: HostPlan, arm: Arm) -> list[str]:
    reached = host.reached
    return [
        path
        for content in arm.patches
        for path in target_paths(reached.name, reached.host, content, host.view.code)
    ]


def _touching(host: HostPlan, paths: Iterable[str]) -> HostPlan:
    """Return the host with paths that are touched for the first time, as found.

    What is known already is kept: it may be changed by now, and directories made.
    """
    new = [path for path in paths if path not in host.touched]
    touched = {**look(host.reached, new), **host.touched}
    found = {path: sha256(content) for path, content in _found_files(touched).items()}
    wanted = {name: {**found, **known} for name, known in host.wanted.items()}
    return replace(host, touched=touched, wanted=wanted)


def _found_files(touched: Mapping[str, PathState]) -> dict[str, bytes]:
    return {
        path: state.content
        for path, state in touched.items()
        if state.kind == "file" and state.content is not None
    }


def _patch_goals(host: HostPlan, arm: Arm) -> list[FileGoal]:
    reached = host.reached
    return [
        goal
        for content in arm.patches
        for goal in goals_of(
            reached.name,
            reached.host,
            content,
            host.view.code,
            lambda path: content_of(host.touched[path]),
        )
    ]


def _check_absent(host: HostPlan, build: Build) -> None:
    for name in build.absent:
        path = f"{host.reached.host.tree.rstrip('/')}/{name}"
        if path in host.touched and host.touched[path].kind != "absent":
            raise DriftError(
                f"{build.arm.name} would overwrite {path} on {host.reached.name}",
                why="git does not track what lies there",
                next_step="move it away on the host; nothing was applied",
            )


def _check_distinct(host_name: str, arm: Arm, goals: Sequence[FileGoal]) -> None:
    twice = [path for path, times in Counter(goal.path for goal in goals).items() if times > 1]
    if twice:
        raise DriftError(
            f"{arm.name} changes {twice[0]} twice on {host_name}",
            why=", and ".join(goal.why for goal in goals if goal.path == twice[0]),
            next_step="let one patch or flag change a file; nothing was applied",
        )


def _check_on_host(host: HostPlan, files: Mapping[str, bytes]) -> None:
    """Let the host check a build's files with the service's interpreter and its tools."""
    staged = [StagedFile(path, content) for path, content in files.items()]
    findings = host.reached.agent.check(staged, interpreter=host.reached.host.python)
    fatal = [finding for finding in findings if finding.fatal]
    if fatal:
        raise DriftError(
            f"{host.reached.name} refuses {fatal[0].path}",
            why="\n       ".join(f"{found.checked_by}: {found.message}" for found in fatal),
            next_step="mend the file; nothing was applied",
        )
