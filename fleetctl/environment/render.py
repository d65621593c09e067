"""What people read: diffs of edits."""

from __future__ import annotations

import difflib

from fleetctl.environment.shell.tree import text_of


def unified_diff(path: str, old: bytes | None, new: bytes | None) -> str:
    """Return the change of a file as `diff -u` shows it; bytes that are no text are escaped."""
    before, after = _lines(old), _lines(new)
    diff = difflib.unified_diff(
        before,
        after,
        path if old is not None else "/dev/null",
        path if new is not None else "/dev/null",
        n=2,
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff
    )


def _lines(content: bytes | None) -> list[str]:
    text = text_of(content or b"").encode("utf-8", "backslashreplace").decode()
    return [line + "\n" for line in text.split("\n")[:-1]] + (
        [text.split("\n")[-1]] if not text.endswith("\n") and text else []
    )
