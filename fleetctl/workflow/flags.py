"""Flags -> file goals: exact edits of what makes the service's environment on this host."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.environment.shell.edit import edit_script
from fleetctl.environment.shell.parser import system_parser
from fleetctl.errors import InputError
from fleetctl.plan.desired import FileGoal
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.observe import HostView


def flag_goals(
    host: Reached, flags: Mapping[str, str | None], view: HostView
) -> tuple[FileGoal, ...]:
    """Return the files whose edit gives the service exactly these flags.

    Raises:
        EditRefused: a flag can't be set exactly.
    """
    if not flags:
        return ()
    script = host.host.serve_scripts[0]
    content = view.read(script)
    if content is None:
        raise InputError(
            f"{host.name} has no serve script {script}",
            why="the inventory names it, and the host has no such file",
            next_step="mend `serve_scripts` in the inventory",
        )
    edited = edit_script(content, flags, system_parser())
    names = ", ".join(change.name for change in edited.changes)
    return (FileGoal(script, edited.content, f"flags {names}"),)
