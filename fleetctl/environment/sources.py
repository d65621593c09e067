"""Everything a host says about where one service's flags come from: pure data, handed over.

The agent reads files; what else it should read shows only when they are understood.
So the caller asks `wanted_files`, adds what the host has, and asks again until nothing is wanted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleetctl.environment.files import FileMap, Link, read
from fleetctl.environment.shell.analysis import ANYBODY, Analysis, Caller, analyse
from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.shell.parser import Parser, ScriptRejected
from fleetctl.environment.systemd.exec_line import FileLibrary, Start, View, start_of, view
from fleetctl.environment.systemd.unit import Manager, Service, load
from fleetctl.errors import EditRefused
from fleetctl.transaction.snapshot import MANAGER_ENVIRONMENT, PathState, UnitState


@dataclass(frozen=True)
class ProcessEnvironment:
    """One live process of the unit, as /proc shows it.

    Attributes:
        command: its arguments.
        variables: its environment at the last exec; None where it can't be read.
    """

    pid: int
    command: tuple[str, ...]
    variables: Mapping[str, str] | None

    @property
    def is_shell(self) -> bool:
        """Say whether it is the shell of a serve script, which exports to its children only."""
        program = self.command[0] if self.command else ""
        return posixpath.basename(program).lstrip("-") in ("bash", "sh", "dash")


@dataclass(frozen=True)
class Sources:
    """What is known of one service.

    Attributes:
        unit: its name.
        files: unit files, drop-ins, environment files, serve scripts and what they source.
        scripts: the serve scripts that the inventory names, the first one is edited.
        manager: whose unit it is, and the manager's own environment.
        processes: the live processes of the unit's control group.
    """

    unit: str
    files: Mapping[str, bytes | Link]
    scripts: tuple[str, ...] = ()
    manager: Manager = field(default_factory=Manager)
    processes: tuple[ProcessEnvironment, ...] = ()

    def tree(self) -> FileMap:
        """Return the files as a host's tree."""
        return FileMap(self.files)

    def service(self) -> Service | None:
        """Return the unit as systemd would load it, None where its file is not known."""
        return load(self.tree(), self.unit, self.manager)


def entries_of(states: Iterable[PathState]) -> dict[str, bytes | Link]:
    """Return what an agent reported, as files and links."""
    found: dict[str, bytes | Link] = {}
    for state in states:
        if state.link_target is not None:
            found[state.path] = Link(state.link_target)
        elif state.content is not None and state.real_path != state.path:
            found[state.path] = Link(state.real_path)  # a directory on the way is a link
        if state.content is not None:
            found[state.real_path] = state.content
    return found


def unit_entries(unit: UnitState) -> dict[str, bytes | Link]:
    """Return the files of a unit that an agent reported, its aliases as links."""
    found = entries_of(unit.sources)
    fragment = unit.properties.get("FragmentPath", "")
    for name in unit.properties.get("Names", "").split():
        path = f"{posixpath.dirname(fragment)}/{name}"
        if fragment and name != unit.unit and path not in found:
            found[path] = Link(fragment)
    return found


def manager_of(unit: UnitState) -> Manager:
    """Return the manager with the variables that `systemctl show-environment` says it gives."""
    lines = unit.properties.get(MANAGER_ENVIRONMENT, "").splitlines()
    pairs = [line.partition("=") for line in lines]
    # what needs quotes is shown as $'...' and is not undone here
    given = {n: HOLE if v.startswith("$'") else v for n, equals, v in pairs if equals}
    return Manager(given=given)


def wanted_files(sources: Sources, parser: Parser) -> tuple[str, ...]:
    """Return the paths that would say more: environment files, scripts, what scripts source."""
    service = sources.service()
    wanted = list(sources.scripts)
    if service is not None:
        wanted += [item.pattern for item in service.files if "*" not in item.pattern]
        start = start_of(sources.tree(), service, sources.manager)
        if start is not None and start.command is None:
            first = start.value.split()[:1]
            wanted += [word.lstrip("-@:+!") for word in first]
        if start is not None:
            wanted += [path for path in (start.script, start.unread) if path]
    for path, content in scripts_of(sources):
        wanted += _opened(path, content, sources, parser)
    seen = understand(sources, parser).seen.analysis
    wanted += seen.opened if seen is not None else ()
    known = (path for path in wanted if path.startswith("/") and HOLE not in path)
    return tuple(p for p in dict.fromkeys(known) if read(sources.tree(), p) is None)


def scripts_of(sources: Sources) -> list[tuple[str, bytes]]:
    """Return the serve scripts that are known, the one of ExecStart= among them."""
    paths = list(sources.scripts)
    service = sources.service()
    start = start_of(sources.tree(), service, sources.manager) if service else None
    if start is not None and start.script and start.script not in paths:
        paths.append(start.script)
    found = ((path, read(sources.tree(), path)) for path in paths)
    return [(path, content) for path, content in found if content is not None]


def _opened(path: str, content: bytes, sources: Sources, parser: Parser) -> tuple[str, ...]:
    try:
        found = analyse(
            content, parser, path=path, library=FileLibrary(sources.tree()), caller=ANYBODY
        )
    except (ScriptRejected, EditRefused):
        return ()
    return found.opened


@dataclass(frozen=True)
class Understood:
    """The service and its script, analysed together.

    Attributes:
        service: None where the unit's file is not known.
        start: its command.
        seen: what the server sees.
        script: path of the script that `seen` is about, "" where there is none.
    """

    service: Service | None
    start: Start | None
    seen: View
    script: str


def understand(sources: Sources, parser: Parser) -> Understood:
    """Analyse a service: its unit, and the script that it runs or that the inventory names."""
    tree = sources.tree()
    service = sources.service()
    start = start_of(tree, service, sources.manager) if service else None
    environment = service.environment() if service else {}
    absent = service.absent() if service else frozenset()
    seen = view(tree, parser, start, environment, absent)
    if seen.analysis is not None or not sources.scripts:
        return Understood(service, start, seen, start.script if start else "")
    path = sources.scripts[0]
    content = read(tree, path)
    caller = Caller(environment, complete=service is not None) if service else ANYBODY
    found = _analysed(path, content, caller, sources, parser) if content is not None else None
    text = content.decode("utf-8", "surrogateescape") if content is not None else ""
    return Understood(service, start, View(start, environment, found, text, ""), path)


def _analysed(
    path: str, content: bytes, caller: Caller, sources: Sources, parser: Parser
) -> Analysis | None:
    try:
        return analyse(
            content, parser, path=path, library=FileLibrary(sources.tree()), caller=caller
        )
    except (ScriptRejected, EditRefused):
        return None
