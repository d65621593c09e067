"""What is told of a file that somebody else changed: where its before-image lies, and a diff."""

from __future__ import annotations

from fleetctl.agent.files import Look
from fleetctl.agent.state import StateDir
from fleetctl.transaction.image import Absent
from fleetctl.transaction.outcome import Conflict
from fleetctl.transaction.step import RestoreFile

DIFF_LINES = 200
DIFF_BYTES = 256 * 1024


def conflict(state: StateDir, undo: RestoreFile, why: str) -> Conflict:
    """Return the conflict of a file that is left as it is, in these words."""
    image = undo.before.image
    if isinstance(image, Absent):
        return Conflict(undo.before.path, why, before_object="", mode=None)
    kept = str(state.object_path(image.sha256))
    return Conflict(undo.before.path, why, before_object=kept, mode=image.mode)


def diff(state: StateDir, undo: RestoreFile, seen: Look | Absent | str) -> str:
    """Return a diff from what fleetctl wrote to what was seen, or why there is none."""
    if isinstance(seen, str):
        return seen
    try:
        ours = b"" if isinstance(undo.ours, Absent) else state.get_object(undo.ours)
        now = b"" if isinstance(seen, Absent) else seen.content
        return _unified(ours, now)
    except (OSError, ValueError) as error:
        return f"no diff: {error}"


def _unified(ours: bytes, now: bytes) -> str:
    if max(len(ours), len(now)) > DIFF_BYTES:
        return f"no diff: {len(ours)} bytes of fleetctl's, {len(now)} now"
    try:
        old, new = ours.decode().splitlines(), now.decode().splitlines()
    except UnicodeDecodeError:
        return f"no diff: binary, {len(ours)} bytes of fleetctl's, {len(now)} now"
    import difflib  # noqa: PLC0415 - slow to load, and needed for conflicts only

    lines = list(difflib.unified_diff(old, new, "written by fleetctl", "now", lineterm=""))
    cut = [f"… {len(lines) - DIFF_LINES} lines more"] if len(lines) > DIFF_LINES else []
    return "\n".join(lines[:DIFF_LINES] + cut)
