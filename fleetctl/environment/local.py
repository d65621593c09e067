"""Edits of this machine's files by hand: which kind a file is, and writing what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.environment.disk import read_file, remove_file, replace_file
from fleetctl.environment.files import DiskFiles
from fleetctl.environment.shell.edit import Context, edit_script, starts_server
from fleetctl.environment.shell.parser import Parser, system_parser
from fleetctl.environment.systemd.edit import edit_service
from fleetctl.environment.systemd.envfile import edit_env_file, is_env_file
from fleetctl.environment.systemd.exec_line import FileLibrary
from fleetctl.environment.systemd.unit import Manager
from fleetctl.errors import EditRefused


@dataclass(frozen=True)
class LocalEdit:
    """One file of this machine that has to change; see `systemd.edit.FileEdit`."""

    path: Path
    old: bytes | None
    new: bytes | None
    means: str
    why: str


def edit_local_file(path: Path, edits: Mapping[str, str | None]) -> tuple[LocalEdit, ...]:
    """Return the edit of a serve script or an env file; nothing where all holds already.

    Raises:
        InputError: the file can't be read.
        EditRefused: the edit can't be exact.
    """
    content = read_file(path)
    if path.suffix in (".service", ".conf"):
        raise EditRefused(
            f"{path} is a unit file",
            code="unsupported",
            why="other files of the unit may override it, and it may belong to a package",
            next_step=f"fleetctl env edit --unit {path.name} NAME=VALUE",
        )
    new, why = _edited(path, content, edits, system_parser())
    if new == content:
        return ()
    return (LocalEdit(path, content, new, "file", why),)


def _edited(
    path: Path, content: bytes, edits: Mapping[str, str | None], parser: Parser
) -> tuple[bytes, str]:
    # NAME=value COMMAND is a line of an env file as well as one that starts a server.
    if is_env_file(content) and not starts_server(content, parser):
        return edit_env_file(content, edits), "environment file"
    full = path.absolute()
    context = Context(path=str(full), library=FileLibrary(DiskFiles(Path("/"))))
    edited = edit_script(content, edits, parser, context=context)
    return edited.content, "; ".join(map(str, edited.changes))


def edit_local_unit(
    root: Path, unit: str, edits: Mapping[str, str | None], *, user: bool
) -> tuple[LocalEdit, ...]:
    """Return the edits that give a service below a root directory exact flags.

    Raises:
        EditRefused: it can't be done exactly.
    """
    files = DiskFiles(root)
    manager = Manager(home=_home(files, unit) if user else None)
    found = edit_service(files, unit, edits, system_parser(), manager=manager)
    return tuple(
        LocalEdit(files.real(edit.path), edit.old, edit.new, edit.means, edit.why) for edit in found
    )


def _home(files: DiskFiles, unit: str) -> str:
    """Return the home of the user whose unit it is."""
    homes = [f"/home/{name}" for name in files.names("/home")] + ["/root"]
    if files.root == Path("/"):
        homes = [str(Path.home()), *homes]
    having = [h for h in homes if files.entry(f"{h}/.config/systemd/user/{unit}") is not None]
    with_units = [h for h in homes if files.names(f"{h}/.config/systemd/user")]
    return (having or with_units or homes)[0]


def write_edits(edits: tuple[LocalEdit, ...]) -> None:
    """Write what was found, each file atomically.

    Raises:
        InputError: a file changed meanwhile, or can't be written.
    """
    for edit in edits:
        if edit.new is None:
            remove_file(edit.path)
        else:
            replace_file(edit.path, edit.old, edit.new)
