"""Exact edits of what a service gets: through a drop-in of ours, its script, or its command."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.environment.files import Files, Overlay, read, resolved
from fleetctl.environment.names import check_edits, check_unit_values
from fleetctl.environment.shell.edit import Context, edit_script
from fleetctl.environment.shell.parser import Parser
from fleetctl.environment.systemd.dropin import OWN_NAME, DropIn, Step, own_name
from fleetctl.environment.systemd.envfile import edit_env_file
from fleetctl.environment.systemd.exec_edit import edited_start
from fleetctl.environment.systemd.exec_line import (
    FileLibrary,
    Start,
    View,
    caller_of,
    script_content,
    start_of,
    view,
)
from fleetctl.environment.systemd.syntax import UNIT_NAME
from fleetctl.environment.systemd.unit import (
    GENERATED,
    Manager,
    Service,
    find_fragment,
    instances_of,
    load,
)
from fleetctl.errors import EditRefused

_VENDOR = ("/usr/", "/lib/", "/run/", "/nix/")


@dataclass(frozen=True)
class FileEdit:
    """One file that has to change.

    Attributes:
        path: on the host.
        old: its present content, None where it does not exist.
        new: its new content, None where it has to go.
        means: `script`, `unit drop-in` or `environment file`.
        why: for people.
    """

    path: str
    old: bytes | None
    new: bytes | None
    means: str
    why: str


def edit_service(
    files: Files,
    unit: str,
    edits: Mapping[str, str | None],
    parser: Parser,
    *,
    manager: Manager | None = None,
    scripts_first: bool = False,
) -> tuple[FileEdit, ...]:
    """Return the files to write so that the service's server sees exactly the wanted values.

    Args:
        files: the host's.
        unit: a service, one instance of a template, or the template for all instances.
        edits: name to value; None means absent.
        parser: shfmt and bash.
        manager: whose unit it is; the system's by default.
        scripts_first: edit the serve script even where a drop-in would do, unless that is refused.

    Raises:
        EditRefused: it can't be done exactly.
    """
    check_edits(edits)
    editor = _Editor(files, unit, parser, manager or Manager())
    editor.check_unit()
    for name, wanted in edits.items():
        if not editor.sees(name, wanted):
            editor.apply(name, wanted, scripts_first=scripts_first)
    editor.check_result(edits)
    return editor.result()


@dataclass
class _Editor:
    """The edit of one unit under way: `changed` is what differs from the host by now."""

    files: Files
    unit: str
    parser: Parser
    manager: Manager
    changed: dict[str, bytes | None] = field(default_factory=dict)
    reasons: dict[str, tuple[str, str]] = field(default_factory=dict)

    # ---- what is there

    def now(self) -> Overlay:
        return Overlay(self.files, self.changed)

    def service(self) -> Service:
        service = load(self.now(), self.unit, self.manager)
        if service is None:
            raise self.refused("not-found", f"there is no unit file for {self.unit}")
        return service

    def start(self) -> Start | None:
        return start_of(self.now(), self.service(), self.manager)

    def view(self, changed: Mapping[str, str | None] | None = None) -> View:
        """Return what the server sees, after the unit's own environment was changed."""
        service = self.service()
        environment, absent = service.environment(), set(service.absent())
        for name, value in (changed or {}).items():
            environment.pop(name, None)
            absent.add(name)
            if value is not None:
                environment[name] = value
        return view(self.now(), self.parser, self.start(), environment, frozenset(absent))

    def sees(self, name: str, wanted: str | None) -> bool:
        return self.view().variable(name).holds(wanted)

    def check_unit(self) -> None:
        if "/" in self.unit or not self.unit:
            raise self.refused("invalid-unit", "a unit's name has no slash")
        if not UNIT_NAME.fullmatch(self.unit) or len(self.unit) > 255:
            raise self.refused("unsupported", "only services have an environment to edit")
        fragment = find_fragment(self.files, self.unit, self.manager)
        if fragment is None:
            generated = any(self.files.entry(f"{d}/{self.unit}") is not None for d in GENERATED)
            if generated:
                raise self.refused("unsupported", "the unit is generated at every start")
            raise self.refused("not-found", f"there is no unit file for {self.unit}")
        if resolved(self.files, fragment) == "/dev/null" or not read(self.files, fragment):
            raise self.refused("unsupported", f"{fragment} masks the unit: it can't be started")
        for item in self.service().files:
            if not item.paths and not item.optional and "@." not in self.unit:
                why = f"{item.setting}:{item.line} needs {item.pattern}: the unit can't start"
                raise self.refused("missing-file", why)

    # ---- edits

    def apply(self, name: str, wanted: str | None, *, scripts_first: bool) -> None:
        if scripts_first and self.start() is not None and self.script_edited(name, wanted):
            return
        if self.view({name: wanted}).variable(name).holds(wanted):
            self.through_drop_in(name, wanted)
            return
        start = self.start()
        if start is not None and start.script:
            self.edit_script(start, name, wanted)
            if self.sees(name, wanted):
                return
            raise self.refused("unsupported", f"{start.script} does not let {name} through")
        self.edit_command(start, name, wanted)

    def script_edited(self, name: str, wanted: str | None) -> bool:
        start = self.start()
        if start is None or not start.script:
            return False
        try:
            self.edit_script(start, name, wanted)
        except EditRefused:
            if self.view({name: wanted}).variable(name).holds(wanted):
                return False
            raise
        return self.sees(name, wanted)

    def edit_script(self, start: Start, name: str, wanted: str | None) -> None:
        content = script_content(self.now(), start)
        path = resolved(self.now(), start.script)
        if content is None:
            raise self.refused("unsupported", f"{start.script} can't be read")
        if path.startswith(_VENDOR):
            raise self.refused("unsupported", f"{path} belongs to a package")
        environment = self.service().environment()
        context = Context(
            path=start.script,
            library=FileLibrary(self.now()),
            caller=caller_of(start, environment, self.service().absent()),
        )
        edited = edit_script(content, {name: wanted}, self.parser, context=context)
        if edited.content != content:
            means = ", ".join(f"{each.means}{each.reason}" for each in edited.changes)
            self.write(path, edited.content, "script", f"{name}: {means}")

    def edit_command(self, start: Start | None, name: str, wanted: str | None) -> None:
        if start is None or len(self.service().starts) != 1:
            raise self.refused("unsupported", "the unit has no single ExecStart=")
        value = edited_start(start, name, wanted, self.service().environment(), self.parser)
        self.rewrite(
            lambda own: own.with_start(value), f"{name}: ExecStart= in {start.path} sets it itself"
        )
        if wanted is None and not self.sees(name, wanted):
            self.through_drop_in(name, wanted)
        if not self.sees(name, wanted):
            raise self.refused("unsupported", "the command does not let it through")

    def through_drop_in(self, name: str, wanted: str | None) -> None:
        if wanted is None:
            self.rewrite(lambda own: own.with_unset(name), f"{name}: taken away after all others")
            return
        check_unit_values({name: wanted})
        if self.is_filed(name):
            self.through_file(name, wanted)
        else:
            self.rewrite(lambda own: own.with_value(name, wanted), f"{name}: set after all others")
        unset = self.service().unset
        if any(item.name == name and item.value in (None, wanted) for item in unset):
            kept = [item for item in unset if item.name != name]
            self.rewrite(
                lambda own: own.with_unset_anew(kept), f"{name}: no longer taken away by others"
            )

    def is_filed(self, name: str) -> bool:
        """Say whether an environment file sets the name, which beats every Environment=.

        A line that this systemd takes for a comment counts, too: another version may not.
        """
        settings = self.service().settings.get(name, ())
        line = re.compile(rb"(?m)^[ \t]*" + name.encode() + rb"[ \t]*=")
        paths = [path for item in self.service().files for path in item.paths]
        return any(setting.how == "EnvironmentFile=" for setting in settings) or any(
            line.search(read(self.now(), path) or b"") for path in paths
        )

    def through_file(self, name: str, wanted: str) -> None:
        path = f"{self.manager.state_directory()}/{_file_name(self.unit)}.env"
        old = read(self.now(), path)
        content = edit_env_file(old or b"# managed by fleetctl\n", {name: wanted})
        why = f"{name}: an environment file sets it, which beats Environment="
        self.write(path, content, "environment file", why)
        self.rewrite(lambda own: own.without(name).with_file(path), why)

    # ---- our files

    def drop_in_directory(self) -> str:
        return f"{self.manager.own_directory()}/{self.unit}.d"

    def rewrite(self, step: Step, why: str) -> None:
        directory = self.drop_in_directory()
        names = [n for n in self.now().names(directory) if OWN_NAME.fullmatch(n)]
        own = DropIn()
        for name in names:
            own = DropIn((*own.lines, *DropIn.parse(read(self.now(), f"{directory}/{name}")).lines))
        foreign = [posixpath.basename(p) for p in self.service().drop_ins]
        foreign = [n for n in foreign if n not in names]
        chosen = own_name(foreign)
        for name in names:
            if name != chosen:
                self.write(f"{directory}/{name}", None, "unit drop-in", "renamed to come last")
        self.write(f"{directory}/{chosen}", step(own).content(), "unit drop-in", why)

    def write(self, path: str, content: bytes | None, means: str, why: str) -> None:
        self.changed[path] = content
        reasons = self.reasons.get(path, (means, ""))[1]
        self.reasons[path] = (means, f"{reasons}; {why}" if reasons and why not in reasons else why)

    # ---- the result

    def check_result(self, edits: Mapping[str, str | None]) -> None:
        for name, wanted in edits.items():
            if not self.sees(name, wanted):
                raise self.refused("unsupported", f"{name} is set again after every place we own")
        if "@." in self.unit:
            for instance in instances_of(self.files, self.unit, self.manager):
                self.check_instance(instance, edits)

    def check_instance(self, instance: str, edits: Mapping[str, str | None]) -> None:
        before = load(self.files, instance, self.manager)
        after = load(self.now(), instance, self.manager)
        shared = load(self.files, self.unit, self.manager)
        for name, wanted in edits.items():
            common = {(s.path, s.line) for s in (shared.settings.get(name, ()) if shared else ())}
            settings = before.settings.get(name, ()) if before else ()
            own = [s for s in settings if (s.path, s.line) not in common]
            value = after.environment().get(name) if after else None
            if own or value != wanted:
                where = f" ({own[-1].path}:{own[-1].line})" if own else ""
                why = f"{instance} has a value of {name} of its own{where}"
                raise self.refused("ambiguous", why)

    def result(self) -> tuple[FileEdit, ...]:
        edits = []
        for path, new in self.changed.items():
            old = read(self.files, path)
            if old != new:
                means, why = self.reasons[path]
                edits.append(FileEdit(path, old, new, means, why))
        return tuple(edits)

    def refused(self, code: str, why: str) -> EditRefused:
        return EditRefused(
            f"the environment of {self.unit} can't be edited",
            code=code,
            why=why,
            next_step="`systemctl cat` shows what is there; edit it by hand where that is meant",
        )


def _file_name(unit: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.@:-]", "_", unit)
