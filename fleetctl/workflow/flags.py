"""Where a host's flags come from, and the files whose edit changes them exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleetctl.environment.explain import FlagOrigin, explain
from fleetctl.environment.planned import plan_edits
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import (
    ProcessEnvironment,
    Sources,
    entries_of,
    manager_of,
    unit_entries,
    wanted_files,
)
from fleetctl.errors import EditRefused
from fleetctl.plan.desired import FileGoal
from fleetctl.transaction.snapshot import PathQuery, Query, UnitState
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.observe import look

# a script that sources a script that sources a script …
_MOST_ROUNDS = 6


def flag_goals(
    host: Reached, flags: Mapping[str, str | None], sources: Sources
) -> tuple[FileGoal, ...]:
    """Return the files whose edit gives the service exactly these flags.

    Raises:
        EditRefused: a flag can't be set exactly; the reason and the line are told.
    """
    if not flags:
        return ()
    try:
        edits = plan_edits(sources, flags, system_parser())
    except EditRefused as refused:
        refused.what = f"{host.name}: {refused.what}"
        raise
    return tuple(FileGoal(edit.path, edit.new, f"{edit.means}: {edit.why}") for edit in edits)


def sources_of(host: Reached, unit: UnitState) -> Sources:
    """Return everything that makes the service's environment: each file, however it is reached."""
    scripts = tuple(host.host.serve_scripts)
    sources = Sources(unit.unit, unit_entries(unit), scripts, manager_of(unit))
    asked: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        wanted = [p for p in wanted_files(sources, system_parser()) if p not in asked]
        if not wanted:
            break
        asked |= set(wanted)
        found = entries_of(look(host, wanted).values())
        sources = replace(sources, files={**sources.files, **found})
    return sources


def explain_flags(host: Reached, names: tuple[str, ...] = ()) -> tuple[FlagOrigin, ...]:
    """Return, for each flag of a host's service, who sets it and what its processes have.

    Raises:
        HostError: the host could not be asked.
    """
    scripts = tuple(PathQuery(path, content=True) for path in host.host.serve_scripts)
    observed = host.agent.observe(Query(scripts, (host.host.unit,)))
    sources = sources_of(host, observed.units[0])
    parser = system_parser()
    chosen = names or tuple(origin.name for origin in explain(sources, parser))
    report = host.agent.unit(host.host.unit, flags=chosen, log_lines=0)
    processes = tuple(
        ProcessEnvironment(
            process.pid,
            (process.executable,),
            dict(process.flags) if process.environment_readable else None,
        )
        for process in report.processes
    )
    return explain(replace(sources, processes=processes), parser, chosen)
