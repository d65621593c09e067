"""A held site as it was found: builds are planned from it one by one, whatever stands on it now.

A search does not know beforehand which builds it will ask for. What it plans from (files, flags'
sources, caches of compiled kernels) is therefore read before the first change and kept, and a path
that a later build is the first to touch is read then: no earlier build has changed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.environment.sources import Sources
from fleetctl.errors import DriftError
from fleetctl.plan.desired import Desired, FileGoal, with_as_found
from fleetctl.plan.jit import ArmCaches, Cache, caches_in_use, caches_of
from fleetctl.plan.patches import goals_of, target_paths
from fleetctl.plan.planner import Plan, content_of, plan_host, sha256
from fleetctl.spec.arms import Arm
from fleetctl.spec.ready import Ready
from fleetctl.transaction.outcome import StagedFile
from fleetctl.transaction.snapshot import PathState
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.flags import flag_goals, sources_of
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
    """A held site, host by host, as found."""

    held: HeldSite
    hosts: tuple[HostGround, ...]

    @classmethod
    def of(cls, held: HeldSite) -> Ground:
        """Return the ground of a site on which nothing has been changed yet."""
        return cls(held, tuple(HostGround.of(host, held.job.ready) for host in held.plan.hosts))

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
        hosts = tuple(ground.with_build(build, tuple(arms.values())) for ground in self.hosts)
        self.held.plan = replace(plan, arms=arms, hosts=hosts)
        self.held.prepared = [
            replace(
                one,
                plans=host.plans,
                arms=arms,
                wanted=host.wanted,
                within=host.within,
                own_flags=host.own_flags,
            )
            for one, host in zip(self.held.prepared, hosts, strict=True)
        ]


@dataclass
class HostGround:
    """One host as found, and what the builds so far want of it.

    Attributes:
        plan: the host with the plan of each build.
        sources: where its flags come from.
        in_use: caches of compiled kernels that its service uses.
        places: their directories and those above them.
        goals: by build: files that differ from as found, flags of its own caches included.
    """

    plan: HostPlan
    ready: Ready
    sources: Sources
    in_use: tuple[Cache, ...]
    places: Mapping[str, PathState]
    goals: dict[str, tuple[FileGoal, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, host: HostPlan, ready: Ready) -> HostGround:
        """Return the ground of a host on which nothing has been changed yet."""
        in_use = caches_in_use(host.view.code)
        places = look(host.reached, [cache.directory for cache in in_use])
        return cls(host, ready, sources_of(host.reached, host.view.unit), in_use, places)

    def with_build(self, build: Build, arms: tuple[Arm, ...]) -> HostPlan:
        """Return the host's plan with one more build, which the host has looked at.

        Raises:
            DriftError: the build does not fit onto what was found.
            EditRefused: a flag can't be set exactly.
        """
        name, arm, reached = build.arm.name, build.arm, self.plan.reached
        code = reached.agent.code(code_query(reached, arms))
        self.plan = replace(self.plan, view=replace(self.plan.view, code=code))
        self._touch(_patched(self.plan, arm))
        _check_absent(self.plan, build)
        patched = _patch_goals(self.plan, arm)
        caches, goals = self._with_caches(arm, patched)
        _check_distinct(reached.name, arm, goals)
        self._touch(caches.flags.values())
        _check_on_host(self.plan, {g.path: g.content for g in goals if g.content is not None})
        self.goals[name] = tuple(goals)
        self.plan = replace(self.plan, caches={**self.plan.caches, name: caches})
        self.plan = replace(
            self.plan,
            plans={known: self._plan(known) for known in self.goals},
            wanted={known: self._wanted(known) for known in self.goals},
        )
        return self.plan

    def _with_caches(
        self, arm: Arm, patched: Sequence[FileGoal]
    ) -> tuple[ArmCaches, list[FileGoal]]:
        """Return where a build keeps its compiled kernels, and all of its files with that."""
        plain = self._differing([*patched, *self._flags(arm.flags)])
        caches = caches_of(arm, plain, self.in_use, self.places)
        return caches, self._differing([*patched, *self._flags({**arm.flags, **caches.flags})])

    def _flags(self, flags: Mapping[str, str | None]) -> tuple[FileGoal, ...]:
        goals = flag_goals(self.plan.reached, flags, self.sources)
        self._touch(goal.path for goal in goals)
        return goals

    def _differing(self, goals: Iterable[FileGoal]) -> list[FileGoal]:
        return [g for g in goals if g.content != content_of(self.plan.touched[g.path])]

    def _touch(self, paths: Iterable[str]) -> None:
        """Keep how paths are as found that no build has touched so far.

        What is known already stays as it was read: it may be changed by now, and directories made.
        """
        new = [path for path in paths if path not in self.plan.touched]
        touched = {**look(self.plan.reached, new), **self.plan.touched}
        self.plan = replace(self.plan, touched=touched)

    def _plan(self, name: str) -> Plan:
        # lent in every build, so that what one has compiled outlives the others' turns
        lent = sorted({d for caches in self.plan.caches.values() for d in caches.flags.values()})
        unit = self.plan.reached.host.unit
        return plan_host(
            self.plan.reached.name,
            Desired(self.goals[name], unit, lent=tuple(lent)),
            self.plan.touched,
            soak_s=self.ready.soak,
            stop_s=self.ready.stop,
            restart_always=True,
        )

    def _wanted(self, name: str) -> dict[str, str]:
        """Return the digest of every file any build touches, as this build has it."""
        found = {
            path: state.content
            for path, state in self.plan.touched.items()
            if state.kind == "file" and state.content is not None
        }
        files = with_as_found(self.goals[name], found)
        return {file.path: sha256(file.content) for file in files if file.content is not None}


def _patched(host: HostPlan, arm: Arm) -> list[str]:
    reached = host.reached
    return [
        path
        for content in arm.patches
        for path in target_paths(reached.name, reached.host, content, host.view.code)
    ]


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
