"""Plan every arm on every host of a site, from the host as found; nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from fleetctl.environment.sources import Sources
from fleetctl.errors import EditRefused, InputError
from fleetctl.plan.desired import FileGoal
from fleetctl.plan.diff import steps_of, whole_plan
from fleetctl.plan.jit import NO_CACHES, ArmCaches, caches_in_use, caches_of
from fleetctl.plan.planner import Plan
from fleetctl.spec.arms import Arm
from fleetctl.spec.ready import Ready
from fleetctl.transaction.snapshot import MANAGER_ENVIRONMENT, PathState
from fleetctl.transaction.step import describe
from fleetctl.workflow.arm_plans import ArmPlanner, check_distinct, findings_on, patch_goals
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.flags import flag_goals, sources_of
from fleetctl.workflow.observe import HostView, look, observe
from fleetctl.workflow.site import Site

_STOPPED_WITH = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
_SHARE = (
    "; or let the arms share the caches of compiled kernels: "
    "`[jit]` with `share = true` and a `reason`"
)


@dataclass(frozen=True)
class HostPlan:
    """One host with the plan of each arm.

    Attributes:
        view: the host as found.
        touched: every file any arm touches, as found.
        plans: by arm name.
        wanted: by arm name: path -> sha256 of what that arm has there.
        caches: by arm name: where it keeps its compiled kernels.
    """

    reached: Reached
    view: HostView
    touched: Mapping[str, PathState]
    plans: Mapping[str, Plan]
    wanted: Mapping[str, Mapping[str, str]]
    caches: Mapping[str, ArmCaches] = field(default_factory=dict)

    @property
    def own_flags(self) -> Mapping[str, Mapping[str, str]]:
        """By arm name: the variables by which it gets caches of its own."""
        return {arm: found.flags for arm, found in self.caches.items()}

    @property
    def lent(self) -> tuple[str, ...]:
        """Directories of compiled kernels, lent for the whole run, each once."""
        own = (path for caches in self.caches.values() for path in caches.flags.values())
        return tuple(dict.fromkeys(own))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the unit does at a stop that its owner may not want."""
        pids = {process.pid for process in self.view.code.processes}
        return unit_warnings(self.view.unit.properties, pids - {0})

    @property
    def within(self) -> tuple[str, ...]:
        """Directories that no step may leave: the tree, and those of the files edited by name."""
        named = {self._nearest_directory(path) for path in self.touched}
        return tuple(sorted({self.reached.host.tree, *named}))

    def _nearest_directory(self, path: str) -> str:
        """Return the innermost directory above a path that exists already."""
        for parent in PurePosixPath(path).parents:
            state = self.touched.get(str(parent))
            if state is not None and state.kind == "directory":
                return str(parent)
        return str(PurePosixPath(path).parent)

    def facts_json(self) -> dict[str, Any]:
        """Return what the host is, for the run's folder."""
        facts = self.view.observed.facts
        unit = dict(self.view.unit.properties)
        unit.pop(MANAGER_ENVIRONMENT, None)  # of all services of the host, tokens among it
        return {
            "host": self.reached.name,
            "class": self.reached.host.host_class,
            "labels": self.reached.host.labels,
            "facts": asdict(facts),
            "unit": unit,
            "code": asdict(self.view.code),
        }


@dataclass(frozen=True)
class SitePlan:
    """A site with the plans of its hosts."""

    site: Site
    arms: Mapping[str, Arm]
    hosts: tuple[HostPlan, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the plan for the run's folder and for `--json`."""
        return {
            "site": self.site.name,
            "hosts": [_host_json(host) for host in self.hosts],
        }


def plan_site(site: Site, arms: Sequence[Arm], ready: Ready) -> SitePlan:
    """Observe every host of a site and plan each arm on it.

    Raises:
        LeaseHeld: somebody works on a host; the message names them.
        DriftError: a module or unit is not what spec and inventory say.
        EditRefused: a flag can't be set exactly.
    """
    with ThreadPoolExecutor(len(site.hosts)) as pool:
        hosts = tuple(pool.map(lambda host: _plan_host(host, arms, ready), site.hosts))
    return SitePlan(site, {arm.name: arm for arm in arms}, hosts)


def _plan_host(host: Reached, arms: Sequence[Arm], ready: Ready) -> HostPlan:
    view = observe(host, arms)
    maker = _GoalMaker(host, view, sources_of(host, view.unit))
    own = maker.caches(arms)
    goals = {arm.name: maker.goals(arm, own[arm.name].flags) for arm in arms}
    paths = sorted({goal.path for found in goals.values() for goal in found})
    lent = sorted({path for caches in own.values() for path in caches.flags.values()})
    touched = look(host, [*paths, *lent], known=view.paths)
    as_found = {path: _content(touched[path]) for path in paths}
    planner = ArmPlanner(host, view, touched, as_found, tuple(lent), ready)
    planned = {arm.name: planner.plan(arm, goals[arm.name]) for arm in arms}
    plans = {name: plan for name, (plan, _) in planned.items()}
    wanted = {name: digests for name, (_, digests) in planned.items()}
    return HostPlan(host, view, touched, plans, wanted, own)


@dataclass(frozen=True)
class _GoalMaker:
    """Turns the arms into files of one host."""

    host: Reached
    view: HostView
    sources: Sources

    def caches(self, arms: Sequence[Arm]) -> dict[str, ArmCaches]:
        """Return where each arm keeps its compiled kernels."""
        in_use = caches_in_use(self.view.code)
        plain = {arm.name: self.goals(arm, {}) for arm in arms} if in_use else {}
        paths = {goal.path for found in plain.values() for goal in found}
        wanted = [*paths, *(cache.directory for cache in in_use)]
        seen = look(self.host, wanted, known=self.view.paths)
        return {
            arm.name: caches_of(
                arm,
                [g for g in plain.get(arm.name, ()) if g.content != _content(seen[g.path])],
                in_use,
                seen,
            )
            for arm in arms
        }

    def goals(self, arm: Arm, own: Mapping[str, str]) -> tuple[FileGoal, ...]:
        """Return the files of an arm; `own` holds the variables of its own caches."""
        goals = patch_goals(self.host, arm, self.view.code, self.view.read)
        goals += self._flags(arm.flags, own)
        check_distinct(self.host.name, arm, goals, InputError)
        return tuple(goals)

    def _flags(
        self, flags: Mapping[str, str | None], own: Mapping[str, str]
    ) -> tuple[FileGoal, ...]:
        try:
            return flag_goals(self.host, {**flags, **own}, self.sources)
        except EditRefused as refused:
            if own:
                refused.next_step += _SHARE
            raise


def _content(state: PathState) -> bytes | None:
    return state.content if state.kind == "file" else None


def unit_warnings(properties: Mapping[str, str], serving: Collection[int]) -> tuple[str, ...]:
    """Return what may go wrong when a unit is stopped, and what went wrong before.

    Args:
        properties: of the unit, as systemd tells them.
        serving: pids of its Python processes.
    """
    kill_mode = properties.get("KillMode", "")
    main = properties.get("MainPID", "0")
    is_wrapped = main.isdigit() and int(main) > 0 and bool(serving) and int(main) not in serving
    found = []
    if is_wrapped:
        found.append(
            f"the unit's main process {main} is no Python process: without `exec` the serve "
            "script stands between systemd and the server"
        )
    if kill_mode == "process":
        found.append("KillMode=process: a stop leaves all but the main process running")
    if kill_mode == "mixed" and is_wrapped:
        found.append("KillMode=mixed: only the script hears of a stop, the server is killed")
    if kill_mode == "control-group":
        found.append(
            "KillMode=control-group: a stop signals every process at once, so requests in flight "
            "are not drained"
        )
    restarts = properties.get("NRestarts", "")
    if restarts not in ("", "0"):
        found.append(
            f"systemd has restarted the unit by itself since it was last started: NRestarts="
            f"{restarts}; `journalctl -u` says why, and a crash loop can't be put back"
        )
    along = [name for each in _STOPPED_WITH for name in properties.get(each, "").split()]
    if along:
        found.append(
            f"a stop takes along {', '.join(dict.fromkeys(along))}; those that run are started "
            "again after every restart of the service"
        )
    return tuple(found)


def check_on_host(edges: Edges, plan: SitePlan) -> None:
    """Let each host check the new files with its own interpreter and tools; say what is odd.

    Raises:
        InputError: a file must not be deployed; nothing was changed.
    """
    for host in plan.hosts:
        for note in dict.fromkeys(note for found in host.plans.values() for note in found.notes):
            edges.talk.say(f"{host.reached.name}: {note}")
        # an arm's version of a file is checked, also where another arm has its own
        files = dict.fromkeys(
            (change.path, change.after)
            for found in host.plans.values()
            for change in found.changes
            if change.after is not None
        )
        for finding in findings_on(host.reached, files, InputError):
            edges.talk.say(f"{host.reached.name}: {finding.path}: {finding.message}")


def _host_json(host: HostPlan) -> dict[str, Any]:
    return {
        "host": host.reached.name,
        "warnings": list(host.warnings),
        "lent_for_the_whole_run": list(host.lent),
        "arms": {
            arm: _arm_json(plan, host.caches.get(arm, NO_CACHES))
            for arm, plan in host.plans.items()
        },
    }


def _arm_json(plan: Plan, caches: ArmCaches) -> dict[str, Any]:
    """Return what an arm asks for; what is lent for the other arms beside it is the host's."""
    uses = caches.flags.values()
    return {
        "steps": [describe(step) for step in steps_of(plan, uses)],
        "files": {change.path: change.why for change in plan.changes},
        "diff": list(whole_plan(plan, uses=uses)),
        "cannot_predict": list(plan.notes),
        "compiled_kernels": caches.directories,
    }
