"""A series of changes stacked on a host's real bytes: each diff is applied onto those before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fleetctl.errors import DriftError
from fleetctl.plan.patches import goals_of, module_paths
from fleetctl.plan.planner import sha256
from fleetctl.spec.arms import Arm, PatchContent, flags_of, read_patch
from fleetctl.spec.bisect import Base, Change
from fleetctl.spec.experiment import Patch
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.observe import HostView, observe

_DIGITS = 8


@dataclass(frozen=True)
class Content:
    """A change with the bytes of its patches.

    Attributes:
        flags: name -> value, or None for absent.
    """

    name: str
    patches: tuple[PatchContent, ...] = ()
    flags: Mapping[str, str | None] = field(default_factory=dict)


def read_changes(base: Base, changes: Iterable[Change], spec_path: Path) -> tuple[Content, ...]:
    """Return the base and the changes after it, with their patches read and parsed.

    Raises:
        InputError: a source is missing, or Python in it does not parse.
    """
    named = [("base", base.patch, base.env), *((c.name, c.patch, c.env) for c in changes)]
    return tuple(
        Content(name, tuple(read_patch(patch, spec_path) for patch in patches), flags_of(env))
        for name, patches, env in named
    )


@dataclass(frozen=True)
class Written:
    """A file as the changes so far leave it.

    Attributes:
        content: None when it is removed.
        by: name of the last change that wrote it, and its patch.
        module: the module that it is, where a patch names it so.
    """

    content: bytes | None
    by: str
    patch: Patch
    module: str | None


@dataclass(frozen=True)
class Stack:
    """A host as found, onto which changes are stacked."""

    host: Reached
    view: HostView

    @classmethod
    def on(cls, host: Reached, contents: Iterable[Content]) -> Stack:
        """Return the stack of a free host, or ours, that is as found, ready for these changes.

        Raises:
            DriftError: a module is not imported where it should be.
        """
        patches = tuple(patch for content in contents for patch in content.patches)
        return cls(host, observe(host, [Arm("series", patches)], is_ours=True))

    def arm(self, name: str, contents: Iterable[Content]) -> Arm:
        """Return the arm that has these changes, in this order.

        Raises:
            DriftError: a diff does not fit onto what the changes before it leave.
        """
        files: dict[str, Written] = {}
        flags: dict[str, str | None] = {}
        for content in contents:
            flags |= content.flags
            for patch in content.patches:
                self._stack(files, content.name, patch)
        patches = [self._patch(path, written) for path, written in files.items()]
        return Arm(name, tuple(patch for patch in patches if patch is not None), flags)

    def _stack(self, files: dict[str, Written], change: str, content: PatchContent) -> None:
        host, code = self.host, self.view.code
        modules = {path: m for m, path in module_paths(host.name, host.host, content, code).items()}

        def read(path: str) -> bytes | None:
            return files[path].content if path in files else self.view.read(path)

        try:
            goals = goals_of(host.name, host.host, content, code, read)
        except DriftError as error:
            error.what = f"change {change}: {error.what}"
            raise
        for goal in goals:
            module = modules.get(goal.path)
            files[goal.path] = Written(goal.content, change, content.patch, module)

    def _patch(self, path: str, written: Written) -> PatchContent | None:
        """Return the patch that writes one file whole, or None where it is as found."""
        found = self.view.read(path)
        if written.content == found:
            return None
        place = str(PurePosixPath(path).relative_to(self.host.host.tree))
        if written.content is None:
            return removal(place, found or b"", written.by)
        is_known = found is not None and written.module is not None
        return whole_file(
            place,
            written.content,
            written.by,
            module=written.module if is_known else None,
            like=written.patch,
        )


def whole_file(
    place: str,
    content: bytes,
    by: str,
    *,
    module: str | None = None,
    like: Patch | None = None,
    base_sha256: str | None = None,
) -> PatchContent:
    """Return the patch that writes one file.

    Args:
        place: relative to the host's tree.
        content: all of it.
        by: what wrote it last, for people.
        module: where it must be imported from; None for a file that no import shows.
        like: the patch whose marker and layout it keeps.
        base_sha256: of the file that must be there as found.
    """
    # the digest keeps the name from ending as a diff's or a directory's does
    source = f"{by}:{place}@{sha256(content)[:_DIGITS]}"
    patch = Patch(
        source=source,
        module=module,
        path=None if module else place,
        base_sha256=base_sha256,
        marker=like.marker if like else None,
        layout=like.layout if like else False,
    )
    return PatchContent(patch, {"": content})


def removal(place: str, found: bytes, by: str) -> PatchContent:
    """Return the patch that removes one file which is as found.

    Raises:
        DriftError: its name or its emptiness can't be spelled in a diff.
    """
    if not found or not place.isascii() or not place.isprintable() or set(place) & {'"', "\\"}:
        raise DriftError(
            f"{by} removes {place}, which can't be done exactly",
            why="an empty file, or a name with special characters",
            next_step="leave it in place in this change",
        )
    lines = found.split(b"\n")
    ends = lines[-1] == b""
    kept = lines[:-1] if ends else lines
    text = b"".join(b"-" + line + b"\n" for line in kept)
    text += b"" if ends else b"\\ No newline at end of file\n"
    head = f"--- a/{place}\n+++ /dev/null\n@@ -1,{len(kept)} +0,0 @@\n".encode()
    # a removal is told by its header alone: only the digest says that it is this very file
    patch = Patch(source=f"{by}:remove {place}.diff", path=".", base_sha256=sha256(found))
    return PatchContent(patch, {"": head + text})


def same_on_all(arms: Sequence[Arm]) -> Arm:
    """Return the arm that every host of a site gives.

    Raises:
        DriftError: they differ, because the hosts hold different bytes.
    """
    if any(arm != arms[0] for arm in arms):
        raise DriftError(
            f"{arms[0].name} would not be the same on all hosts of the site",
            why="the files that the changes start from differ between them",
            next_step="make the hosts equal first; nothing was touched",
        )
    return arms[0]
