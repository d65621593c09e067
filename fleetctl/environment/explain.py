"""Where each flag comes from: its value, who sets it, who is overridden, what runs."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fleetctl.environment.shell.analysis import MANAGER_GIVES
from fleetctl.environment.shell.dataflow import HOLE, Means, Variable, Write
from fleetctl.environment.shell.parser import Parser
from fleetctl.environment.sources import (
    ProcessEnvironment,
    Sources,
    Understood,
    scripts_of,
    understand,
)
from fleetctl.environment.systemd.unit import BY_MANAGER, Setting


class Finding(enum.Enum):
    """What people get wrong about flags, named."""

    COMMENTED = "commented export"
    NOT_EXPORTED = "assigned but not exported"
    LATER = "later override"
    SOURCED = "sourced override"
    UNIT = "unit override"
    SCRIPT = "script override"
    BRANCHES = "per-branch export"
    COMPUTED = "computed value"
    DIFFERING = "differing processes"
    UNEXPECTED = "value not what the source says"


@dataclass(frozen=True)
class Place:
    """One place that says something about a flag.

    Attributes:
        value: its text; `HOLE` stands for what only running it would tell; None for unset.
        how: `export`, `Environment=`, `source ./site.sh` and the like.
    """

    path: str
    line: int
    how: str
    value: str | None


@dataclass(frozen=True)
class Noted:
    """A finding in words, with its place where it has one."""

    finding: Finding
    what: str
    path: str = ""
    line: int = 0


@dataclass(frozen=True)
class Running:
    """What one live process has.

    Attributes:
        value: None for absent.
        is_shell: it is the shell of a serve script.
        is_readable: its environment could be read.
    """

    pid: int
    command: tuple[str, ...]
    value: str | None
    is_shell: bool
    is_readable: bool = True

    @property
    def counts(self) -> bool:
        """Say whether it tells what a server has."""
        return self.is_readable and not self.is_shell


@dataclass(frozen=True)
class FlagOrigin:
    """One flag.

    Attributes:
        value: what a server that starts now gets; None for absent, `HOLE` for what can't be told.
        setters: who gives it this value; several where it depends on the way.
        overridden: who would have given it another one.
    """

    name: str
    value: str | None
    setters: tuple[Place, ...]
    overridden: tuple[Place, ...]
    running: tuple[Running, ...]
    findings: tuple[Noted, ...]


def explain(
    sources: Sources, parser: Parser, names: Iterable[str] | None = None
) -> tuple[FlagOrigin, ...]:
    """Return the origin of flags.

    Args:
        sources: what the host said.
        parser: shfmt and bash.
        names: the flags asked for; by default every one that the unit or the script sets.
    """
    understood = understand(sources, parser)
    chosen = sorted(_all_names(understood)) if names is None else dict.fromkeys(names)
    comments = list(_commented(sources))
    return tuple(_origin(name, sources, understood, comments) for name in chosen)


def flag_names(sources: Sources, parser: Parser) -> tuple[str, ...]:
    """Return every flag that the unit or the script sets, to ask the processes about."""
    return tuple(sorted(_all_names(understand(sources, parser))))


def _all_names(understood: Understood) -> set[str]:
    settings = understood.service.settings if understood.service else {}
    names = {n for n, s in settings.items() if n not in MANAGER_GIVES or s[-1].how != BY_MANAGER}
    analysis = understood.seen.analysis
    if analysis is not None:
        for launch in analysis.launches:
            names |= {n for n in analysis.names if launch.variable(n).exported is not False}
    return {name for name in names if name not in ("PWD", "OLDPWD", "OPTARG", "OPTIND", "_")}


def _origin(
    name: str, sources: Sources, understood: Understood, comments: Sequence[tuple[str, Place]]
) -> FlagOrigin:
    variable = understood.seen.told(name)
    settings = _settings(name, understood)
    by_script = [w for w in variable.writers if w.means is not Means.INHERITED]
    from_unit = [_from_setting(s) for s in settings]
    setters = _sorted(_from_write(w, understood) for w in by_script)
    if from_unit and len(by_script) < max(len(variable.writers), 1):
        setters = (*setters, from_unit[-1])
    earlier = {w for w in variable.earlier if w.means is not Means.INHERITED} - set(by_script)
    losing = [p for p in from_unit if p not in setters]
    overridden = (*losing, *_sorted(_from_write(w, understood) for w in earlier))
    value = variable.value if variable.exported is True else HOLE
    value = None if variable.value is None or variable.exported is False else value
    running = tuple(_running(process, name) for process in sources.processes)
    origin = FlagOrigin(name, value, setters, overridden, running, ())
    findings = tuple(_findings(origin, variable, settings, understood, comments))
    return FlagOrigin(name, value, setters, overridden, running, findings)


def _settings(name: str, understood: Understood) -> tuple[Setting, ...]:
    return understood.service.settings.get(name, ()) if understood.service else ()


def _from_setting(setting: Setting) -> Place:
    return Place(setting.path, setting.line, setting.how, setting.value)


def _from_write(write: Write, understood: Understood) -> Place:
    return Place(write.path or understood.script, write.line, write.how, write.text)


def _sorted(places: Iterable[Place]) -> tuple[Place, ...]:
    return tuple(sorted(set(places), key=lambda p: (p.path, p.line, p.how)))


def _running(process: ProcessEnvironment, name: str) -> Running:
    value = (process.variables or {}).get(name)
    readable = process.variables is not None
    return Running(process.pid, process.command, value, process.is_shell, readable)


def _commented(sources: Sources) -> Iterator[tuple[str, Place]]:
    """Yield the assignments that stand in comments of the serve scripts."""
    pattern = re.compile(r"^\s*#+\s*(?:export\s+)?([A-Za-z_]\w*)=(\S*)", re.ASCII)
    for path, content in scripts_of(sources):
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            found = pattern.match(line)
            if found:
                yield found[1], Place(path, number, "comment", found[2])


def _findings(
    origin: FlagOrigin,
    variable: Variable,
    settings: Sequence[Setting],
    understood: Understood,
    comments: Sequence[tuple[str, Place]],
) -> Iterator[Noted]:
    for name, place in comments:
        if name == origin.name:
            what = f"line {place.line} sets it only in a comment"
            yield Noted(Finding.COMMENTED, what, place.path, place.line)
    if variable.exported is not True and variable.value is not None and origin.setters:
        last = origin.setters[-1]
        what = (
            "a server does not see it" if variable.exported is False else "it may not be exported"
        )
        yield Noted(Finding.NOT_EXPORTED, what, last.path, last.line)
    yield from _overrides(origin, settings, understood)
    yield from _uncertain(origin, variable)
    yield from _of_processes(origin)


def _overrides(
    origin: FlagOrigin, settings: Sequence[Setting], understood: Understood
) -> Iterator[Noted]:
    unit_places = {(s.path, s.line) for s in settings}
    script_wins = [p for p in origin.setters if (p.path, p.line) not in unit_places]
    script_loses = [p for p in origin.overridden if (p.path, p.line) not in unit_places]
    if settings and any(_keeps(place, origin.name, understood) for place in script_wins):
        last = settings[-1]
        what = f"the script keeps it (line {script_wins[0].line} only has a default)"
        yield Noted(Finding.UNIT, what, last.path, last.line)
        return
    for place in script_wins:
        before = [p for p in script_loses if p != place]
        if place.path not in (understood.script, "") and (before or settings):
            yield Noted(Finding.SOURCED, f"{place.how} has the last word", place.path, place.line)
        elif place.how.startswith(("source", ".")):
            yield Noted(Finding.SOURCED, f"{place.how} may set it", place.path, place.line)
        elif before:
            lines = ", ".join(str(p.line) for p in before)
            what = f"line {place.line} overrides line {lines}"
            yield Noted(Finding.LATER, what, place.path, place.line)
    if script_wins and settings:
        first = script_wins[0]
        what = f"the script overrides {settings[-1].how} of the unit"
        yield Noted(Finding.SCRIPT, what, first.path, first.line)
    if not script_wins and len(settings) > 1:
        last = settings[-1]
        beaten = settings[-2]
        where = f" in {beaten.path}:{beaten.line}" if beaten.path else ""
        what = f"{last.how} overrides {beaten.how}{where}"
        yield Noted(Finding.UNIT, what, last.path, last.line)
    elif not script_wins and settings and script_loses:
        last = settings[-1]
        yield Noted(Finding.UNIT, "the unit's value is kept by the script", last.path, last.line)


def _keeps(place: Place, name: str, understood: Understood) -> bool:
    """Say whether a line of the script takes the value it found: A=${A:-1}."""
    lines = understood.seen.script_text.split("\n")
    if place.path not in (understood.script, "") or not 0 < place.line <= len(lines):
        return False
    return re.search(rf"\$\{{{name}:?-", lines[place.line - 1]) is not None


def _uncertain(origin: FlagOrigin, variable: Variable) -> Iterator[Noted]:
    if len(variable.writers) > 1:
        places = ", ".join(f"{p.path}:{p.line}" for p in origin.setters)
        yield Noted(Finding.BRANCHES, f"the value depends on the way through the script: {places}")
    elif variable.value is not None and HOLE in variable.value and origin.setters:
        place = origin.setters[0]
        yield Noted(Finding.COMPUTED, "only running it tells the value", place.path, place.line)


def _of_processes(origin: FlagOrigin) -> Iterator[Noted]:
    servers = [process for process in origin.running if process.counts]
    values = {process.value for process in servers}
    if len(values) > 1:
        shown = ", ".join(f"{p.pid} has {'none' if p.value is None else p.value}" for p in servers)
        yield Noted(Finding.DIFFERING, shown)
    known = origin.value is None or HOLE not in origin.value
    wrong = [process for process in servers if process.value != origin.value]
    if known and wrong:
        shown = ", ".join(f"{p.pid} has {'none' if p.value is None else p.value}" for p in wrong)
        yield Noted(Finding.UNEXPECTED, f"{shown}; a restart, or a source not known here")
