"""Flags -> file goals: exact edits of what makes the service's environment on this host."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.environment.files import Link
from fleetctl.environment.shell.edit import Context, edit_script
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.systemd.edit import edit_service
from fleetctl.environment.systemd.exec_line import FileLibrary
from fleetctl.errors import EditRefused, InputError
from fleetctl.plan.desired import FileGoal
from fleetctl.transaction.snapshot import PathQuery, PathState, Query
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.observe import HostView

_UNIT_FOLDERS = ("/etc/systemd/", "/run/systemd/", "/usr/lib/systemd/", "/lib/systemd/")


@dataclass
class HostFiles:
    """A host's files as `fleetctl.environment` asks for them; satisfies its `Files`.

    What the observation brought is there already. A further file, such as one that a serve
    script sources, is fetched when it is asked for. Of systemd's folders the observation
    brought everything that counts for the unit.
    """

    host: Reached
    known: dict[str, bytes | Link | None] = field(default_factory=dict)

    def entry(self, path: str) -> bytes | Link | None:
        """Return a file's content, a link, or None where there is neither."""
        if path not in self.known and not path.startswith(_UNIT_FOLDERS):
            (state,) = self.host.agent.observe(Query((PathQuery(path, content=True),))).paths
            self.known[path] = _entry(state)
        return self.known.get(path)

    def names(self, directory: str) -> tuple[str, ...]:
        """Return the names that are known in a directory."""
        lead = directory.rstrip("/") + "/"
        below = (
            path[len(lead) :]
            for path, found in self.known.items()
            if found is not None and path.startswith(lead)
        )
        return tuple(sorted({name.partition("/")[0] for name in below}))


def host_files(host: Reached, view: HostView) -> HostFiles:
    """Return the files of a host, as far as the observation knows them."""
    states = [*view.paths.values(), *view.unit.sources]
    return HostFiles(host, {state.path: _entry(state) for state in states})


def _entry(state: PathState) -> bytes | Link | None:
    if state.link_target is not None and state.link_target != state.path:
        return Link(state.link_target)
    return state.content if state.kind == "file" else None


def flag_goals(
    host: Reached, flags: Mapping[str, str | None], view: HostView
) -> tuple[FileGoal, ...]:
    """Return the files whose edit gives the service exactly these flags.

    The unit is followed to what really decides: its serve script first, else a drop-in that
    wins. Where the unit can't be followed, the inventory's serve script is edited.

    Raises:
        EditRefused: a flag can't be set exactly; the reason and the line are told.
    """
    if not flags:
        return ()
    files = host_files(host, view)
    fragment = view.unit.properties.get("FragmentPath", "")
    if not fragment.startswith(_UNIT_FOLDERS):
        return _script_goals(host, flags, files)
    try:
        edits = edit_service(files, host.host.unit, flags, system_parser(), scripts_first=True)
    except EditRefused as refused:
        try:
            return _script_goals(host, flags, files)
        except (EditRefused, InputError):
            refused.what = f"{host.name}: {refused.what}"
            raise refused from None
    return tuple(FileGoal(edit.path, edit.new, f"{edit.means}: {edit.why}") for edit in edits)


def _script_goals(
    host: Reached, flags: Mapping[str, str | None], files: HostFiles
) -> tuple[FileGoal, ...]:
    for script in host.host.serve_scripts[:1]:
        content = files.entry(script)
        if not isinstance(content, bytes):
            break
        context = Context(path=posixpath.normpath(script), library=FileLibrary(files))
        edited = edit_script(content, flags, system_parser(), context=context)
        means = "; ".join(f"{c.name} {c.means}" for c in edited.changes) or "flags hold already"
        return (FileGoal(script, edited.content, f"serve script: {means}"),)
    raise InputError(
        f"{host.name} has no serve script to edit",
        why=f"the inventory names {', '.join(host.host.serve_scripts) or 'none'}",
        next_step="mend `serve_scripts` in the inventory",
    )
