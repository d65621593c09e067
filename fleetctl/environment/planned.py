"""Which files give a service the wanted flags: the serve script first, the unit where that wins."""

from __future__ import annotations

from collections.abc import Mapping

from fleetctl.environment.files import read, resolved
from fleetctl.environment.names import check_edits
from fleetctl.environment.shell.edit import Context, edit_script
from fleetctl.environment.shell.parser import Parser
from fleetctl.environment.sources import Sources
from fleetctl.environment.systemd.edit import FileEdit, edit_service
from fleetctl.environment.systemd.exec_line import FileLibrary, start_of
from fleetctl.errors import EditRefused


def plan_edits(
    sources: Sources, edits: Mapping[str, str | None], parser: Parser
) -> tuple[FileEdit, ...]:
    """Return the files to write, each with the means and the reason; none where all holds.

    The serve script that the inventory names is edited, as people expect. Where that is
    refused and a drop-in of the unit really wins, the drop-in is written instead.

    Raises:
        EditRefused: neither can be exact.
    """
    check_edits(edits)
    service = sources.service()
    if service is None:
        return _script_alone(sources, edits, parser)
    start = start_of(sources.tree(), service, sources.manager)
    tree = sources.tree()
    runs = resolved(tree, start.script) if start is not None and start.script else ""
    named = [resolved(tree, path) for path in sources.scripts]
    if named and runs not in named:
        # The unit reaches the script through something that is not known here.
        return _script_alone(sources, edits, parser)
    return edit_service(
        tree, sources.unit, edits, parser, manager=sources.manager, scripts_first=bool(named)
    )


def _script_alone(
    sources: Sources, edits: Mapping[str, str | None], parser: Parser
) -> tuple[FileEdit, ...]:
    path = sources.scripts[0] if sources.scripts else ""
    content = read(sources.tree(), path) if path else None
    if content is None:
        raise EditRefused(
            f"the flags of {sources.unit} can't be set",
            code="not-found",
            why=f"{path or 'its unit file'} is not known",
            next_step="name the serve script in the inventory, or check the unit's name",
        )
    context = Context(path=path, library=FileLibrary(sources.tree()))
    edited = edit_script(content, edits, parser, context=context)
    if edited.content == content:
        return ()
    why = "; ".join(map(str, edited.changes))
    return (FileEdit(resolved(sources.tree(), path), content, edited.content, "script", why),)
