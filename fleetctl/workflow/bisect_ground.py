"""A held site as it was found: builds are planned from it one by one, whatever stands on it now.

A search does not know beforehand which builds it will ask for. What it plans from (files, flags'
sources, caches of compiled kernels) is therefore read before the first change and kept, and a path
that a later build is the first to touch is read then: no earlier build has changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.environment.sources import Sources
from fleetctl.errors import DriftError
from fleetctl.plan.desired import FileGoal
from fleetctl.plan.jit import ArmCaches, Cache, caches_in_use, caches_of
from fleetctl.plan.patches import target_paths
from fleetctl.plan.planner import content_of
from fleetctl.spec.arms import Arm
from fleetctl.spec.ready import Ready
from fleetctl.transaction.snapshot import PathState
from fleetctl.workflow.arm_plans import ArmPlanner, check_distinct, findings_on, patch_goals
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
        arms: by build: what it is.
    """

    plan: HostPlan
    ready: Ready
    sources: Sources
    in_use: tuple[Cache, ...]
    places: Mapping[str, PathState]
    goals: dict[str, tuple[FileGoal, ...]] = field(default_factory=dict)
    arms: dict[str, Arm] = field(default_factory=dict)

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
        patched = patch_goals(reached, arm, code, lambda path: content_of(self.plan.touched[path]))
        caches, goals = self._with_caches(arm, patched)
        check_distinct(reached.name, arm, goals, DriftError)
        self._touch(caches.flags.values())
        new = [(goal.path, goal.content) for goal in goals if goal.content is not None]
        findings_on(reached, new, DriftError)
        self.goals[name], self.arms[name] = tuple(goals), arm
        self.plan = replace(self.plan, caches={**self.plan.caches, name: caches})
        self.plan = self._planned()
        return self.plan

    def _planned(self) -> HostPlan:
        """Return the host with the plans of all builds so far: each knows what the others touch."""
        lent = sorted({d for caches in self.plan.caches.values() for d in caches.flags.values()})
        as_found: dict[str, bytes | None] = {
            goal.path: None for goals in self.goals.values() for goal in goals
        }
        as_found |= {
            path: state.content
            for path, state in self.plan.touched.items()
            if state.kind == "file" and state.content is not None
        }
        planner = ArmPlanner(
            self.plan.reached,
            self.plan.view,
            self.plan.touched,
            as_found,
            tuple(lent),
            self.ready,
        )
        planned = {name: planner.plan(self.arms[name], self.goals[name]) for name in self.goals}
        return replace(
            self.plan,
            plans={name: plan for name, (plan, _) in planned.items()},
            wanted={name: digests for name, (_, digests) in planned.items()},
        )

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


def _patched(host: HostPlan, arm: Arm) -> list[str]:
    reached = host.reached
    return [
        path
        for content in arm.patches
        for path in target_paths(reached.name, reached.host, content, host.view.code)
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
