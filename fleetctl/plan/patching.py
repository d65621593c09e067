"""Unified diffs applied to a host's real bytes: exactly, without fuzz or offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from fleetctl.errors import DriftError, InputError

# latin-1 maps every byte to one character and back, so any file survives the text parser
_BYTES = "latin-1"
_NOWHERE = "/dev/null"


@dataclass(frozen=True)
class FileChange:
    """What a diff makes of one file; `content` is None when it is removed."""

    path: str
    before: bytes | None
    content: bytes | None


def paths_of(diff: bytes) -> tuple[str, ...]:
    """Return the paths a diff touches, as it spells them without `a/` and `b/`.

    Raises:
        InputError: it is not a unified diff, or it leaves its target.
    """
    return tuple(_path(file) for file in _parse(diff))


def apply_diff(diff: bytes, read: Callable[[str], bytes | None]) -> tuple[FileChange, ...]:
    """Return the files that a diff leads to.

    `read` returns the present bytes of a path of the diff, or None where there is no file.

    Raises:
        InputError: it is not a unified diff.
        DriftError: a hunk does not fit the present bytes; the conflict is shown.
    """
    return tuple(_changed(file, read(_path(file))) for file in _parse(diff))


def _parse(diff: bytes) -> PatchSet:
    try:
        patch = PatchSet(_lines(diff))
    except UnidiffParseError as error:
        raise InputError(
            "the diff can't be read",
            why=str(error),
            next_step="make it with `git diff` or `diff -u`",
        ) from error
    if not patch:
        raise InputError(
            "the diff changes nothing",
            why="it holds no `---`/`+++` file header with hunks",
            next_step="make it with `git diff` or `diff -u`",
        )
    return patch


def _lines(content: bytes) -> list[str]:
    """Return lines cut at newlines only, each with its newline."""
    text = content.decode(_BYTES)
    return [line + "\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _path(file: PatchedFile) -> str:
    path = str(file.path)
    if path.startswith("/") or ".." in path.split("/"):
        raise InputError(
            f"the diff leaves its target: {path}",
            why="paths in a diff are relative and stay below the patch's path",
            next_step="make the diff from inside the tree",
        )
    return path


def _changed(file: PatchedFile, before: bytes | None) -> FileChange:
    path = _path(file)
    # unidiff calls an empty file "added" and an emptied one "removed": only the names tell
    creates = file.source_file == _NOWHERE
    if creates and before is not None:
        raise _conflict(path, "the diff creates the file, but it exists already", "")
    if not creates and before is None:
        raise _conflict(path, "the diff changes the file, but it does not exist", "")
    lines = _file_lines(before or b"")
    result: list[str] = []
    position = 0
    for hunk in file:
        start = max(hunk.source_start - 1, 0) if hunk.source_length else hunk.source_start
        result += lines[position:start]
        result += _hunk(path, hunk, lines[start : start + hunk.source_length])
        position = start + hunk.source_length
    result += lines[position:]
    content = None if file.target_file == _NOWHERE else "".join(result).encode(_BYTES)
    return FileChange(path, before, content)


def _file_lines(content: bytes) -> list[str]:
    """Return lines cut at newlines only; the last keeps its lack of one."""
    parts = content.decode(_BYTES).split("\n")
    return [line + "\n" for line in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _hunk(path: str, hunk: Hunk, present: list[str]) -> list[str]:
    expected, wanted = _sides(hunk)
    if present != expected:
        shown = _show_conflict(present, expected)
        raise _conflict(path, f"hunk @@ -{hunk.source_start},{hunk.source_length} @@", shown)
    return wanted


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """Return the hunk's old and new lines; a no-newline mark takes the newline off its line."""
    expected: list[str] = []
    wanted: list[str] = []
    last: tuple[list[str], ...] = ()
    for line in hunk:
        if line.line_type == "\\":
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            continue
        last = {" ": (expected, wanted), "-": (expected,), "+": (wanted,)}[line.line_type]
        for side in last:
            side.append(line.value)
    return expected, wanted


def _show_conflict(present: list[str], expected: list[str]) -> str:
    ours = "".join(present).encode(_BYTES).decode("utf-8", "replace")
    theirs = "".join(expected).encode(_BYTES).decode("utf-8", "replace")
    return f"<<<<<<< the host's file\n{ours}=======\n{theirs}>>>>>>> the diff's context"


def _conflict(path: str, where: str, shown: str) -> DriftError:
    return DriftError(
        f"the diff does not fit {path}",
        why=f"{where}\n{shown}".rstrip(),
        next_step="make the diff anew from the host's file; nothing was applied",
    )
