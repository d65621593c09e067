"""What systemd gives a service: which files speak, in which order, and who wins.

Lowest first: the manager's environment as far as PassEnvironment= lets it in,
Environment=, EnvironmentFile=; UnsetEnvironment= takes away at the end.

Source: systemd.unit(5) "Unit File Load Path", systemd.exec(5) "Environment Variables in
Spawned Processes"; compared with systemd 252 on every test case.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fleetctl.environment.files import Files, Link, read, resolved
from fleetctl.environment.names import is_name, is_unit_value
from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.systemd.envfile import file_entries
from fleetctl.environment.systemd.syntax import Entry, entries, with_specifiers, words

_SYSTEM = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
_USER = (
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
)
_CONTROL = ("/etc/systemd/system.control", "/run/systemd/system.control")
BY_MANAGER = "systemctl set-environment"
GENERATED = (
    "/run/systemd/generator.early",
    "/run/systemd/generator",
    "/run/systemd/generator.late",
)


@dataclass(frozen=True)
class Manager:
    """Whose unit it is.

    Attributes:
        home: of the user; None for the system manager.
        variables: the manager's own environment, None where it is unknown.
        given: what it gives every service, by `systemctl set-environment` or DefaultEnvironment=.
    """

    home: str | None = None
    variables: Mapping[str, str] | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_system(self) -> bool:
        """Say whether it is the system manager."""
        return self.home is None

    def unit_path(self) -> tuple[str, ...]:
        """Return the directories of units, first one first."""
        if self.home is None:
            return _SYSTEM
        return (f"{self.home}/.config/systemd/user", *_USER)

    def own_directory(self) -> str:
        """Return where units of the administrator, or of the user, lie."""
        return self.unit_path()[0]

    def state_directory(self) -> str:
        """Return where fleetctl keeps environment files of its own."""
        return "/etc/fleetctl/env" if self.home is None else f"{self.home}/.config/fleetctl/env"


@dataclass(frozen=True)
class Setting:
    """One place that says something about a variable.

    Attributes:
        value: None where it takes the variable away.
        how: `Environment=`, `EnvironmentFile=`, `PassEnvironment=`, `UnsetEnvironment=`, or
            `BY_MANAGER`, which has no file.
    """

    name: str
    value: str | None
    how: str
    path: str
    line: int


@dataclass(frozen=True)
class ReadFile:
    """An EnvironmentFile= that is in force.

    Attributes:
        setting: the unit file that names it.
        paths: the files it stands for; none where it is missing.
        optional: it may be missing.
    """

    pattern: str
    setting: str
    line: int
    paths: tuple[str, ...]
    optional: bool


@dataclass(frozen=True)
class Service:
    """A unit as systemd would load it.

    Attributes:
        fragment: the unit file.
        drop_ins: in the order they are read.
        settings: of each name, in order: a later one beats an earlier one.
        files: the environment files, in order.
        unset: the words of UnsetEnvironment= in force, each with its place.
        starts: the ExecStart= lines in force.
        directory: WorkingDirectory=, "" where there is none.
    """

    unit: str
    fragment: str
    drop_ins: tuple[str, ...]
    settings: Mapping[str, tuple[Setting, ...]]
    files: tuple[ReadFile, ...]
    unset: tuple[Setting, ...]
    starts: tuple[tuple[Entry, str], ...]
    directory: str

    def environment(self) -> dict[str, str]:
        """Return what the first process gets; `HOLE` for what only the manager knows."""
        return {n: s[-1].value or "" for n, s in self.settings.items() if s[-1].value is not None}

    def absent(self) -> frozenset[str]:
        """Return the names that the unit surely takes away, whoever gives them."""
        return frozenset(setting.name for setting in self.unset if setting.value is None)


def find_fragment(files: Files, unit: str, manager: Manager) -> str | None:
    """Return the unit file in force, for an instance its template; None where there is none."""
    candidates = [unit]
    if "@" in unit and not unit.startswith("@") and "@." not in unit:
        candidates.append(template_of(unit))
    for name in candidates:
        for directory in manager.unit_path():
            if files.entry(f"{directory}/{name}") is not None:
                return f"{directory}/{name}"
    return None


def template_of(unit: str) -> str:
    """Return nova@.service for nova@0.service."""
    return re.sub(r"@.*\.service\Z", "@.service", unit)


def instances_of(files: Files, template: str, manager: Manager) -> list[str]:
    """Return the instances of a template that show: enabled, or with files of their own."""
    prefix = template.partition("@")[0]
    found = set()
    for directory in manager.unit_path():
        for name in files.names(directory):
            wants = name.endswith((".wants", ".requires", ".upholds"))
            inside = files.names(f"{directory}/{name}") if wants else (name,)
            found |= {unit.removesuffix(".d") for unit in inside}
    found |= {f"{prefix}@{instance}.service" for instance in _filed(files, template, manager)}
    return sorted(
        u for u in found if "@." not in u and u != template and template_of(u) == template
    )


def _filed(files: Files, template: str, manager: Manager) -> Iterator[str]:
    """Yield the instances for which EnvironmentFile=...%i... finds a file."""
    fragment = find_fragment(files, template, manager)
    paths = [fragment, *drop_ins(files, template, manager)] if fragment else []
    for path in paths:
        for entry in entries(read(files, path) or b""):
            folder, _, name = entry.value.removeprefix("-").rpartition("/")
            if entry.key == "EnvironmentFile" and "%i" in name:
                pattern = re.escape(name).replace("%i", "(.+)")
                matches = (re.fullmatch(pattern, each) for each in files.names(folder))
                yield from (found[1] for found in matches if found)


def drop_ins(files: Files, unit: str, manager: Manager) -> list[str]:
    """Return the drop-ins of a unit in the order systemd reads them: by file name."""
    chosen: dict[str, str] = {}
    for directory in drop_in_directories(files, unit, manager):
        for name in files.names(directory):
            if name.endswith(".conf"):
                chosen.setdefault(name, f"{directory}/{name}")
    return [chosen[name] for name in sorted(chosen)]


def drop_in_directories(files: Files, unit: str, manager: Manager) -> list[str]:
    """Return where drop-ins of a unit may lie; of equal file names the first one counts."""
    found = []
    for name in _all_names(files, unit, manager):
        for directory in (*_CONTROL, *manager.unit_path()):
            found += [f"{directory}/{kind}.d" for kind in _kinds(name)]
    found += [f"{directory}/service.d" for directory in manager.unit_path()]
    return list(dict.fromkeys(found))


def _kinds(name: str) -> Iterator[str]:
    """Yield a-b@i.service, a-b@.service, a-.service: from the special to the general."""
    yield name
    stem = name.removesuffix(".service")
    prefix, at, instance = stem.partition("@")
    if at and instance:
        yield f"{prefix}@.service"
    parts = prefix.split("-")
    for count in range(len(parts) - 1, 0, -1):
        yield "-".join(parts[:count]) + "-.service"


def _all_names(files: Files, unit: str, manager: Manager) -> list[str]:
    """Return the unit and its aliases: links to the same file."""
    names = [unit]
    fragment = find_fragment(files, unit, manager)
    if fragment is None:
        return names
    real = resolved(files, fragment)
    if "@" not in unit and posixpath.basename(real).endswith(".service"):
        names.append(posixpath.basename(real))
    for directory in manager.unit_path():
        for name in files.names(directory):
            path = f"{directory}/{name}"
            is_link = isinstance(files.entry(path), Link) and name.endswith(".service")
            if is_link and resolved(files, path) == real:
                names.append(name)
    return list(dict.fromkeys(names))


@dataclass
class _Loading:
    environment: dict[str, list[Setting]]
    files: list[tuple[str, str, int]]
    passed: dict[str, tuple[str, int]]
    unset: list[Setting]
    starts: list[tuple[Entry, str]]
    directory: str = ""
    before: list[str] = field(default_factory=list)


def load(files: Files, unit: str, manager: Manager) -> Service | None:
    """Return the unit as systemd would load it, None where there is none."""
    fragment = find_fragment(files, unit, manager)
    if fragment is None:
        return None
    others = drop_ins(files, unit, manager)
    loading = _Loading({}, [], {}, [], [])
    for path in (fragment, *others):
        for entry in entries(read(files, path) or b""):
            if entry.section == "Service":
                _take(loading, entry, path, unit, manager)
    chosen = tuple(_read_file(files, pattern, path, line) for pattern, path, line in loading.files)
    return Service(
        unit=unit,
        fragment=fragment,
        drop_ins=tuple(others),
        settings=_merged(files, loading, chosen, manager),
        files=chosen,
        unset=tuple(loading.unset),
        starts=tuple(loading.starts),
        directory=loading.directory,
    )


def _take(loading: _Loading, entry: Entry, path: str, unit: str, manager: Manager) -> None:
    def expanded(text: str) -> str:
        return with_specifiers(text, unit, manager.home or "/root", system=manager.is_system)

    listed = [expanded(word.text) for word in words(entry.value)]
    match entry.key:
        case "Environment":
            _take_environment(loading, listed, path, entry)
        case "EnvironmentFile":
            _take_file(loading, expanded(entry.value), path, entry.line)
        case "PassEnvironment":
            places = dict.fromkeys(listed, (path, entry.line))
            loading.passed = {**loading.passed, **places} if entry.value else {}
        case "UnsetEnvironment":
            unset = [_unset(text, path, entry.line) for text in listed]
            loading.unset = [*loading.unset, *unset] if entry.value else []
        case "ExecStart":
            loading.starts = [*loading.starts, (entry, path)] if entry.value else []
        case "ExecStartPre" | "ExecCondition":
            loading.before = [*loading.before, expanded(entry.value)] if entry.value else []
        case "WorkingDirectory":
            loading.directory = expanded(entry.value).removeprefix("-")
        case _:
            pass


def _take_environment(loading: _Loading, listed: list[str], path: str, entry: Entry) -> None:
    if not entry.value:
        loading.environment.clear()
    for text in listed:
        name, equals, value = text.partition("=")
        if equals and is_name(name) and is_unit_value(value.replace(HOLE, "")):
            setting = Setting(name, value, "Environment=", path, entry.line)
            loading.environment.setdefault(name, []).append(setting)


def _unset(text: str, path: str, line: int) -> Setting:
    name, equals, value = text.partition("=")
    return Setting(name, value if equals else None, "UnsetEnvironment=", path, line)


def _take_file(loading: _Loading, value: str, path: str, line: int) -> None:
    if not value:
        loading.files.clear()
    elif value.removeprefix("-").startswith("/"):
        loading.files.append((value, path, line))


def _read_file(files: Files, pattern: str, setting: str, line: int) -> ReadFile:
    path = pattern.removeprefix("-")
    found = tuple(_matching(files, path))
    return ReadFile(path, setting, line, found, optional=pattern.startswith("-"))


def _matching(files: Files, pattern: str) -> Iterator[str]:
    if not re.search(r"[*?\[]", pattern):
        if HOLE not in pattern and read(files, pattern) is not None:
            yield pattern
        return
    bases = [""]
    for part in pattern.strip("/").split("/"):
        bases = [
            f"{base}/{name}"
            for base in bases
            for name in files.names(base or "/")
            if _fits(name, part)
        ]
    yield from (path for path in bases if read(files, path) is not None)


def _fits(name: str, pattern: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return fnmatch.fnmatchcase(name, pattern) and not hidden


def _merged(
    files: Files, loading: _Loading, chosen: tuple[ReadFile, ...], manager: Manager
) -> dict[str, tuple[Setting, ...]]:
    merged: dict[str, list[Setting]] = {
        name: [Setting(name, value, BY_MANAGER, "", 0)] for name, value in manager.given.items()
    }
    for name, (path, line) in loading.passed.items():
        unknown = manager.variables is None
        value = HOLE if unknown else (manager.variables or {}).get(name)
        if value is not None:
            setting = Setting(name, value, "PassEnvironment=", path, line)
            merged.setdefault(name, []).append(setting)
    for name, settings in loading.environment.items():
        merged.setdefault(name, []).extend(settings)
    for item in chosen:
        for path in item.paths:
            made = any(path in command for command in loading.before)
            for entry in file_entries(read(files, path) or b""):
                if is_unit_value(entry.value):
                    value = HOLE if made else entry.value  # it is written anew before each start
                    setting = Setting(entry.name, value, "EnvironmentFile=", path, entry.line)
                    merged.setdefault(entry.name, []).append(setting)
    for unset in loading.unset:
        present = merged.get(unset.name)
        if present and present[-1].value is not None and unset.value in (None, present[-1].value):
            present.append(Setting(unset.name, None, unset.how, unset.path, unset.line))
    return {name: tuple(settings) for name, settings in merged.items()}
