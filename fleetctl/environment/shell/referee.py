"""bash's own parser compares a script before and after an edit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from fleetctl.environment.shell.parser import Parser, ScriptRejected
from fleetctl.environment.shell.tree import bytes_of
from fleetctl.environment.splice import Splice, spliced
from fleetctl.errors import EditRefused


def check_with_bash(
    before: bytes, splices: Sequence[Splice], names: Iterable[str], parser: Parser
) -> None:
    """Refuse an edit after which bash understands anything else differently.

    `bash --pretty-print` prints what bash understood. Every passage that differs has to
    name an edited variable, or be a part of the bytes that were replaced.

    Args:
        before: the script.
        splices: the edit.
        names: of the variables edited.
        parser: bash.

    Raises:
        EditRefused: `referee`.
    """
    after = spliced(before, splices)
    try:
        parser.check(after)
        # no blank lines: those of a value are like any other, and would part what belongs together
        old, new = (_filled(parser.pretty(text)) for text in (before, after))
    except ScriptRejected as error:
        raise _refused(f"bash says of the result: {error.complaint}") from error
    patterns = [re.compile(rb"\b" + bytes_of(name) + rb"\b") for name in names]
    texts = (text for s in splices for text in (before[s.start : s.end], s.new))
    parts = {line.strip() for text in texts for line in text.splitlines() if line.strip()}
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        lines = [*old[i1:i2], *new[j1:j2]]
        named = any(pattern.search(line) for pattern in patterns for line in lines)
        if not named and not all(any(part in line for part in parts) for line in lines):
            raise _refused(f"bash would read {b' '.join(lines)[:80]!r} differently")


def _filled(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if line.strip()]


def _refused(why: str) -> EditRefused:
    return EditRefused(
        "the edit would change more than the flag",
        code="referee",
        why=why,
        next_step="edit the script by hand, and report it as a bug of fleetctl",
    )
