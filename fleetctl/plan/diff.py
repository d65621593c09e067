"""A plan as people read it: unified diffs, exact to the byte where text allows it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator

from fleetctl.plan.planner import Change, Plan, sha256
from fleetctl.transaction.step import (
    LendDirectory,
    MakeDirectory,
    ReloadUnits,
    RestartUnit,
    Step,
    describe,
)

# one value of a flag may be as long as a page; `--json` has it whole
_LONG_CHARACTERS = 400
_SHOWN_CHARACTERS = 120


def render_plan(plan: Plan, *, uses: Collection[str] | None = None) -> Iterator[str]:
    """Yield the lines of one host's plan; long lines are shown by their beginning and digest.

    Nothing in them names the host, so that equal plans read alike.

    Args:
        plan: of one arm.
        uses: lent directories that the arm uses; those it only keeps for other arms are neither
            shown nor counted. None shows all.
    """
    return (_shortened(line) for line in whole_plan(plan, uses=uses))


def _shortened(line: str) -> str:
    if len(line) <= _LONG_CHARACTERS:
        return line
    digest = sha256(line[1:].encode("utf-8", "surrogateescape"))[:12]
    return f"{line[:_SHOWN_CHARACTERS]}… ({len(line) - 1} characters, sha256 {digest})"


def whole_plan(plan: Plan, *, uses: Collection[str] | None = None) -> Iterator[str]:
    """Yield the lines of one host's plan, however long they are; see `render_plan`."""
    steps = steps_of(plan, uses)
    if not steps:
        yield "nothing to change"
        return
    yield f"files that change: {len(plan.changes)}; steps: {len(steps)}"
    for change in plan.changes:
        yield ""
        yield from render_change(change)
    lent = sum(isinstance(s, LendDirectory) for s in steps)
    rest = [s for s in steps if isinstance(s, MakeDirectory | ReloadUnits | RestartUnit)]
    if lent or rest:
        yield ""
    if lent:
        directories = "1 directory" if lent == 1 else f"{lent} directories"
        yield f"  lend {directories} to the service for the whole run"
    for step in rest:
        yield f"  {describe(step)}"


def steps_of(plan: Plan, uses: Collection[str] | None) -> list[Step]:
    """Return the steps that an arm asks for; see `render_plan`."""
    return [step for step in plan.steps if not _is_for_others(step, uses)]


def _is_for_others(step: Step, uses: Collection[str] | None) -> bool:
    return uses is not None and isinstance(step, LendDirectory) and step.path not in uses


def render_change(change: Change) -> Iterator[str]:
    """Yield the unified diff of one file, headed by why it changes."""
    yield f"# {change.why}"
    before, after = change.before or b"", change.after or b""
    old = change.path if change.before is not None else "/dev/null"
    new = change.path if change.after is not None else "/dev/null"
    if _is_binary(before) or _is_binary(after):
        yield f"--- {old}"
        yield f"+++ {new}"
        yield f"binary: {len(before)} bytes -> {len(after)} bytes"
        return
    for line in difflib.unified_diff(_lines(before), _lines(after), old, new):
        text = line.removesuffix("\n")
        yield (
            text.replace("\r", "\\r")
            if line.endswith("\n") or line[:3] in {"---", "+++"}
            else (f"{text}\n\\ No newline at end of file")
        )


def _lines(content: bytes) -> list[str]:
    parts = content.decode("utf-8").split("\n")
    return [line + "\n" for line in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _is_binary(content: bytes) -> bool:
    try:
        return "\0" in content.decode("utf-8")
    except UnicodeDecodeError:
        return True
