"""Patches -> file goals, from the host's real bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from fleetctl.errors import DriftError
from fleetctl.plan.desired import FileGoal
from fleetctl.plan.patching import apply_diff, paths_of
from fleetctl.plan.planner import sha256
from fleetctl.plan.targets import module_file, patch_root, pycache_prefix
from fleetctl.spec.arms import PatchContent
from fleetctl.spec.inventory import Host
from fleetctl.transaction.code import CodeReport

Read = Callable[[str], bytes | None]


def target_paths(
    host_name: str, host: Host, content: PatchContent, code: CodeReport
) -> tuple[str, ...]:
    """Return every path that a patch touches on a host.

    Raises:
        DriftError: the module is not imported where it should be.
        InputError: the diff can't be read.
    """
    patch = content.patch
    if patch.kind == "file":
        if patch.module is not None:
            return (module_file(host_name, host, patch.module, code),)
        return (str(PurePosixPath(host.tree) / (patch.path or "")),)
    root = PurePosixPath(patch_root(host_name, host, patch, code))
    return tuple(str(root / place) for place in _places(content))


def modules_of(content: PatchContent) -> dict[str, str]:
    """Return the modules that a patch through a module brings: place below its root -> name.

    What Python can't import by name (data, scripts with a dash) is left out.

    Raises:
        InputError: the diff can't be read.
    """
    patch = content.patch
    if patch.module is None:
        return {}
    if patch.kind == "file":
        return {"": patch.module}
    above = patch.module.split(".") if patch.kind == "tree" else []
    named = {place: [*above, *_parts(place)] for place in _places(content) if _parts(place)}
    return {place: ".".join(parts).removesuffix(".__init__") for place, parts in named.items()}


def module_paths(
    host_name: str, host: Host, content: PatchContent, code: CodeReport
) -> dict[str, str]:
    """Return the file of every module that a patch brings, by the module's name.

    Raises:
        DriftError: the patch's own module is not imported where it should be.
    """
    named = modules_of(content)
    if not named:
        return {}
    places = dict(zip(_places(content), target_paths(host_name, host, content, code), strict=True))
    return {module: places[place] for place, module in named.items()}


def files_by_path(host: Host, content: PatchContent) -> tuple[str, ...]:
    """Return the files of a patch that names a path and no module.

    Raises:
        InputError: the diff can't be read.
    """
    patch = content.patch
    if patch.path is None:
        return ()
    root = PurePosixPath(host.tree) / patch.path
    if patch.kind == "file":
        return (str(root),)
    return tuple(str(root / place) for place in _places(content))


def _places(content: PatchContent) -> tuple[str, ...]:
    """Return every file of a patch, relative to the patch's root.

    A diff made in a repository spells directories above the package, such as `python/sglang/…`:
    with `module` its paths count from the top-level package on.
    """
    patch = content.patch
    if patch.kind != "diff":
        return tuple(content.files)
    names = paths_of(content.files[""])
    top = patch.module.partition(".")[0] if patch.module else ""
    return tuple(_from(top, name) for name in names)


def _from(top: str, name: str) -> str:
    parts = name.split("/")
    return "/".join(parts[parts.index(top) :]) if top in parts[:-1] else name


def _parts(place: str) -> list[str]:
    """Return the dotted name of a Python file in parts; none where it can't be imported."""
    path = PurePosixPath(place)
    parts = list(path.with_suffix("").parts)
    return parts if path.suffix == ".py" and all(map(str.isidentifier, parts)) else []


def goals_of(
    host_name: str, host: Host, content: PatchContent, code: CodeReport, read: Read
) -> tuple[FileGoal, ...]:
    """Return what the files of a patch should be.

    `read` returns the as-found bytes of a path, or None where there is no file.

    Raises:
        DriftError: `base_sha256` does not match, or a diff does not fit.
    """
    patch = content.patch
    why = f"patch {patch.source}"
    prefix = pycache_prefix(code)
    paths = target_paths(host_name, host, content, code)
    if patch.base_sha256 is not None:
        _check_base(host_name, paths[0], patch.base_sha256, read(paths[0]))
    if patch.kind == "file":
        return (FileGoal(paths[0], content.files[""], why, prefix),)
    if patch.kind == "tree":
        return tuple(
            FileGoal(path, data, why, prefix)
            for path, data in zip(paths, content.files.values(), strict=True)
        )
    by_name = dict(zip(paths_of(content.files[""]), paths, strict=True))
    changes = apply_diff(content.files[""], lambda name: read(by_name[name]))
    return tuple(FileGoal(by_name[c.path], c.content, why, prefix) for c in changes)


def _check_base(host_name: str, path: str, wanted: str, found: bytes | None) -> None:
    has = sha256(found) if found is not None else "no file"
    if has != wanted:
        raise DriftError(
            f"{host_name}: the patch was made for another version of {path}",
            why=f"base_sha256 is {wanted[:12]}, the host has {has[:12]}",
            next_step="make the patch anew from the host's file, or mend `base_sha256`",
        )
