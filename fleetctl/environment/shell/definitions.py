"""What a text defines, wherever in it: functions, and names that can't be written any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetctl.environment.shell.tree import Declaration, Function, Literal, Statement, Word


def functions_in(body: Sequence[Statement]) -> Iterator[Function]:
    """Yield every function definition below some statements."""
    return (node for node in _nodes_in(body) if isinstance(node, Function))


def readonly_names(body: Sequence[Statement]) -> frozenset[str]:
    """Return the names that statements make readonly, in whichever branch or function."""
    declared = (node for node in _nodes_in(body) if isinstance(node, Declaration))
    return frozenset(
        argument.name
        for node in declared
        if node.variant == "readonly"
        or any(_is_flag_r(a.value) for a in node.arguments if not a.name)
        for argument in node.arguments
        if argument.name
    )


def _is_flag_r(word: Word | None) -> bool:
    part = word.parts[0] if word is not None and len(word.parts) == 1 else None
    return isinstance(part, Literal) and part.text.startswith("-") and "r" in part.text


def _nodes_in(body: Sequence[Statement]) -> Iterator[object]:
    pending: list[object] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, tuple | list):
            pending.extend(node)
        elif hasattr(node, "__dataclass_fields__") and not isinstance(node, Word):
            yield node
            pending.extend(getattr(node, name) for name in node.__dataclass_fields__)
