"""The arms of an experiment, with the bytes of their patches read from the repository."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetctl.errors import InputError
from fleetctl.spec.another_day import History
from fleetctl.spec.experiment import Experiment, Patch
from fleetctl.spec.limits import shortened
from fleetctl.spec.loader import load_experiment
from fleetctl.spec.nearest import nearest

_SKIPPED = ("__pycache__", ".git", ".mypy_cache", ".ruff_cache")


@dataclass(frozen=True)
class PatchContent:
    """A patch and the bytes it brings.

    Attributes:
        files: path below the target ("" for a single file or a diff) -> content.
    """

    patch: Patch
    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """sha256 of a single file, else over names and contents; 64 hex digits."""
        if self.files.keys() == {""}:
            return hashlib.sha256(self.files[""]).hexdigest()
        total = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            total.update(f"{name}\0{len(content)}\0".encode() + content)
        return total.hexdigest()


@dataclass(frozen=True)
class Arm:
    """What one arm wants a host to be; an empty arm is the host as found.

    Attributes:
        flags: name -> value, or None for "absent from the environment".
        jit_shared_because: why it may use the caches of compiled kernels that others use; empty
            where it gets its own.
    """

    name: str
    patches: tuple[PatchContent, ...] = ()
    flags: Mapping[str, str | None] = field(default_factory=dict)
    jit_shared_because: str = ""

    @property
    def is_as_found(self) -> bool:
        """Whether this arm changes nothing."""
        return not self.patches and not self.flags


@dataclass(frozen=True)
class Arms:
    """Both arms; `history` replaces the control where it was measured on another day."""

    control: Arm
    treatment: Arm
    history: History | None = None


def arms_of(experiment: Experiment, spec_path: Path) -> Arms:
    """Return the arms of an experiment; sources are read from the spec's repository.

    Raises:
        InputError: a source is missing, or Python in it does not parse.
    """
    arms = _arms_of(experiment, spec_path)
    if not experiment.jit.share:
        return arms
    control, treatment = (
        replace(arm, jit_shared_because=experiment.jit.reason)
        for arm in (arms.control, arms.treatment)
    )
    return replace(arms, control=control, treatment=treatment)


def _arms_of(experiment: Experiment, spec_path: Path) -> Arms:
    treatment = arm_from(
        "treatment", experiment.patch, flags_of(experiment.env), spec_path=spec_path
    )
    control = experiment.control
    if control.spec is not None:
        other_path = find_beside(spec_path, control.spec)
        other = load_experiment(other_path)
        arm = arm_from("control", other.patch, flags_of(other.env), spec_path=other_path)
        return Arms(arm, treatment)
    arm = arm_from("control", control.patch, flags_of(control.env), spec_path=spec_path)
    return Arms(arm, treatment, control.history)


def arm_from(
    name: str, patches: tuple[Patch, ...], flags: Mapping[str, str | None], *, spec_path: Path
) -> Arm:
    """Return an arm with its patches read and parsed.

    Raises:
        InputError: a source is missing, or Python in it does not parse.
    """
    return Arm(name, tuple(read_patch(patch, spec_path) for patch in patches), flags)


def flags_of(env: Mapping[str, str | bool]) -> dict[str, str | None]:
    """Return flags as the environment knows them: a value, or None for absent."""
    return {name: value if isinstance(value, str) else None for name, value in env.items()}


def read_patch(patch: Patch, spec_path: Path) -> PatchContent:
    """Return a patch with its bytes; Python files must parse.

    Raises:
        InputError: the source is missing, unreadable, empty, or Python in it does not parse.
    """
    source = find_beside(spec_path, patch.source)
    try:
        files = _read_tree(source) if patch.kind == "tree" else {"": source.read_bytes()}
    except OSError as error:
        raise InputError(
            f"can't read patch source {patch.source}",
            why=f"{error.filename or source}: {error.strerror or error}",
            next_step="name a readable file; a directory ends with `/`",
        ) from error
    if not files:
        raise InputError(
            f"patch source {patch.source} is empty",
            why="a tree patch needs at least one file",
            next_step="name a directory that holds files",
        )
    for name, content in files.items():
        _check_python(source / name if name else source, content)
    return PatchContent(patch, files)


def _read_tree(source: Path) -> dict[str, bytes]:
    """Return every file below a directory.

    Raises:
        OSError: something in it is neither a file nor a directory, or can't be read: a tree
            without it would be another one.
    """
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(source, onerror=_fail):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*links, *(name for name in names if name not in _SKIPPED)):
            path = Path(folder) / name
            if not path.is_file():
                raise OSError(errno.EINVAL, _kind_of(path), str(path))
            found[str(path.relative_to(source))] = path.read_bytes()
    return dict(sorted(found.items()))


def _fail(error: OSError) -> None:
    raise error


def _kind_of(path: Path) -> str:
    if path.is_dir():
        return "a symlink to a directory is not followed; put the files in its place"
    if path.is_symlink():
        return f"a symlink that leads nowhere ({path.readlink()})"
    return "neither a file nor a directory"


def _without_dots(spec_path: Path, relative: str) -> str:
    """Return how to name what a spec names through `..`, or where to put it."""
    meant = (spec_path.resolve().parent / relative).resolve()
    for folder in spec_path.resolve().parents[:-1] if meant.exists() else ():
        if meant.is_relative_to(folder):
            return f'write "{meant.relative_to(folder)}": folders above the spec are searched'
    return "name it without `..` and `/` in front: folders above the spec are searched"


def find_beside(spec_path: Path, relative: str) -> Path:
    """Return the path that `relative` names, looked up from the spec's folder upwards.

    Raises:
        InputError: no folder above the spec holds it, or it is no path below one.
    """
    where = _where(spec_path, relative)
    if Path(relative).is_absolute() or ".." in Path(relative).parts:
        raise InputError(
            f"{where} names a file through `..` or `/`: {relative}",
            why="a run keeps every file it used under the name that the spec gives, and a resumed "
            "run reads them there",
            next_step=_without_dots(spec_path, relative),
        )
    folders = spec_path.resolve().parents
    for folder in folders:
        if _exists(folder / relative, where):
            return folder / relative
        if (folder / relative).is_symlink():
            raise InputError(
                f"{where} names a symlink that leads nowhere: {relative}",
                why=f"{folder / relative} points to {(folder / relative).readlink()}, "
                "which does not exist",
                next_step="mend the link, or name the file itself",
            )
    parent = next(
        (f / Path(relative).parent for f in folders if (f / relative).parent.is_dir()), None
    )
    siblings = [path.name for path in parent.iterdir()] if parent else []
    raise InputError(
        f"{where} names a missing file: {relative}",
        why=f"neither {folders[0]} nor a folder above it holds it"
        f"{nearest(Path(relative).name, siblings)}",
        next_step="mend the path (relative to the spec or a folder above it), or create the file",
    )


def _where(spec_path: Path, relative: str) -> str:
    """Return the file and the line that names a path, as far as it can be found."""
    quoted = (f'"{relative}"', f"'{relative}'")
    try:
        lines = spec_path.read_text(encoding="utf-8").split("\n")
    except OSError:
        return spec_path.name
    found = (n for n, line in enumerate(lines, 1) if any(text in line for text in quoted))
    number = next(found, None)
    return f"{spec_path.name}:{number}" if number else spec_path.name


def _exists(path: Path, where: str) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise InputError(
            f"{where} names a file that can't be looked for: {shortened(path.name)}",
            why=error.strerror or str(error),
            next_step="mend the path (relative to the spec or a folder above it)",
        ) from error


def _check_python(path: Path, content: bytes) -> None:
    if path.suffix != ".py":
        return
    try:
        compile(content, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(
            f"{path.name} does not compile",
            why=f"{path}{f':{line}' if line else ''}: {getattr(error, 'msg', error)}",
            next_step="mend the file; nothing was touched",
        ) from error
