"""What a host holds, as far as the arms of a run are concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetctl.errors import DriftError
from fleetctl.plan.jit import LIBRARIES, VARIABLES
from fleetctl.plan.patches import files_by_path, modules_of, target_paths
from fleetctl.plan.planner import content_of, parents_of
from fleetctl.spec.arms import Arm
from fleetctl.transaction.code import CodeQuery, CodeReport
from fleetctl.transaction.snapshot import Observed, PathQuery, PathState, Query, UnitState
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.held import refuse_held, refuse_restoring

# a crash loop, a failure or a start under way can be ended, but not put back
_RESTORABLE = ("active", "inactive")


@dataclass(frozen=True)
class HostView:
    """One look at a host.

    Attributes:
        observed: facts, unit, what fleetctl holds there.
        code: what the service's processes import.
        paths: every path looked at, with contents.
    """

    observed: Observed
    code: CodeReport
    paths: dict[str, PathState]

    @property
    def unit(self) -> UnitState:
        """The service's unit."""
        return self.observed.units[0]

    def read(self, path: str) -> bytes | None:
        """Return the bytes a path held, or None where there was no file.

        Raises:
            DriftError: it was something else than a readable file.
        """
        return content_of(self.paths[path])


def observe(host: Reached, arms: Iterable[Arm], *, is_ours: bool = False) -> HostView:
    """Look at everything that the arms of a run could touch.

    Args:
        host: to look at.
        arms: of the run.
        is_ours: whether this run holds the host by now; else nobody may.

    Raises:
        LeaseHeld: somebody works on the host, or it is being restored, which explains whatever
            else is odd about it.
        DriftError: the unit does not exist, or a module is not imported where it should be.
        HostError: the host could not be asked.
    """
    wanted = tuple(arms)
    scripts = tuple(PathQuery(path, content=True) for path in host.host.serve_scripts)
    first = host.agent.observe(Query(scripts, (host.host.unit,), (host.host.python,)))
    if not is_ours:
        refuse_held(host, first.status)
    try:
        return _viewed(host, wanted, first)
    except DriftError:
        if not is_ours:
            refuse_restoring(host, first.status)
        raise


def _viewed(host: Reached, arms: tuple[Arm, ...], first: Observed) -> HostView:
    _check_unit(host, first.units[0])
    code = host.agent.code(code_query(host, arms))
    targets = sorted(
        {
            path
            for arm in arms
            for content in arm.patches
            for path in target_paths(host.name, host.host, content, code)
        }
    )
    paths = {state.path: state for state in first.paths}
    return HostView(first, code, look(host, [*paths, *targets], known=paths))


def look(
    host: Reached, paths: Iterable[str], *, known: Mapping[str, PathState] | None = None
) -> dict[str, PathState]:
    """Return the present state of files, with contents, and of the directories above them.

    Args:
        host: to ask, once, unless everything is known.
        paths: of the files.
        known: what was looked at a moment ago, with contents, and is not asked for again.
    """
    found = dict(known or {})
    files = tuple(dict.fromkeys(paths))
    above = dict.fromkeys(parent for path in files for parent in parents_of(path))
    queries = [PathQuery(path, content=True) for path in files if path not in found]
    queries += [PathQuery(path) for path in above if path not in files and path not in found]
    if queries:
        observed = host.agent.observe(Query(tuple(queries)))
        found |= {state.path: state for state in observed.paths}
    return {path: found[path] for path in (*files, *above)}


def code_query(host: Reached, arms: tuple[Arm, ...]) -> CodeQuery:
    """Return the question about every module and flag that the arms name."""
    patches = [content for arm in arms for content in arm.patches]
    modules = {content.patch.module for content in patches if content.patch.module}
    modules |= {module for content in patches for module in modules_of(content).values()}
    files = {path for content in patches for path in files_by_path(host.host, content)}
    names = {name for arm in arms for name in arm.flags}
    return CodeQuery(
        unit=host.host.unit,
        modules=tuple(sorted(modules)),
        interpreter=host.host.python,
        directory=host.host.tree,
        names=tuple(sorted(names)),
        variables=VARIABLES,
        files=tuple(sorted(files)),
        libraries=LIBRARIES,
    )


def _check_unit(host: Reached, unit: UnitState) -> None:
    loaded = unit.properties.get("LoadState", "loaded")
    if unit.problem or loaded not in ("loaded", ""):
        raise DriftError(
            f"{host.name} has no usable unit {host.host.unit}",
            why=unit.problem or f"systemd says LoadState={loaded}",
            next_step="mend `unit` in the inventory; nothing was touched",
        )
    state = unit.properties.get("ActiveState", "active")
    if state not in _RESTORABLE:
        raise DriftError(
            f"{host.host.unit} on {host.name} is in no state that could be brought back",
            why=f"it is {state}/{unit.properties.get('SubState', '')} as found",
            next_step="let it finish its start, or mend and restart it; nothing was touched",
        )
