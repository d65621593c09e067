"""What is wrong with a value, in the words of TOML: pydantic speaks of tuples and instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleetctl.spec.limits import shortened
from fleetctl.spec.nearest import nearest

# pydantic's error -> what should stand there
_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
# the patterns of specs and inventories -> what they ask for
PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$": (
        "letters, digits, `_`, `.` and `-`, 80 at most, a letter or digit first"
    ),
    r"^[0-9a-f]{64}$": "64 hexadecimal digits, in lower case",
    r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$": "a module as in `import`, such as pkg.mod",
    r"^/[^\x00]*$": "an absolute path",
    r"^https?://[^/\s]+$": "http:// or https://, a host and a port, and no path",
    r"^[A-Za-z0-9:_.@\\-]+\.service$": "the full name of a unit, with .service",
    r"^/": "a path that begins with /",
}


def in_words(key: str, raw: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the value of `key`, or None where pydantic's words will do.

    Args:
        key: the key as people write it, such as `workload.argv`; it becomes part of the advice.
        raw: one error of `pydantic.ValidationError.errors()`.
    """
    kind, value, context = raw["type"], raw["input"], raw.get("ctx", {})
    if kind in _WANTED:
        wanted = _WANTED[kind]
        return f"is {_what(value)}, and should be {wanted}{_advice(key, value, wanted)}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"is {shortened(str(value))}, and should be {words} {context[bound]}"
    if kind == "string_pattern_mismatch" and context["pattern"] in PATTERNS:
        return f"is `{shortened(value)}`, and should be {PATTERNS[context['pattern']]}"
    if kind == "literal_error":
        return _not_one_of(value, context["expected"])
    if kind in ("too_short", "too_long"):
        limit = context.get("min_length", context.get("max_length"))
        bound = "at least" if kind == "too_short" else "at most"
        return f"holds {context['actual_length']}, and should hold {bound} {limit}"
    return None


def of_unknown_kind(key: str, raw: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a table whose kind there is not, or None."""
    context = raw.get("ctx", {})
    if raw["type"] == "union_tag_invalid":
        said = _not_one_of(context["tag"], " or ".join(context["expected_tags"].split(", ")))
        return f"`{key}.{context['discriminator'].strip(chr(39))}` {said}"
    return None


def _not_one_of(value: object, expected: str) -> str:
    names = expected.replace(" or ", ", ").replace("'", "").split(", ")
    hint = nearest(value, names) if isinstance(value, str) else ""
    choices = expected.replace("'", '"')
    return f"is {_shown(value)}, and should be {choices}{hint}"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"`{shortened(value)}`"
    return shortened(str(value).lower()) if isinstance(value, int | float) else _what(value)


def _what(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value)
    names = ((int, "a number"), (str, "a text"), (Mapping, "a table"), (Sequence, "a list"))
    return next((name for kind, name in names if isinstance(value, kind)), "a date or time")


def _advice(key: str, value: object, wanted: str) -> str:
    """Return how to write it, where that can be said."""
    last = key.rpartition(".")[2]
    if wanted == "a text" and isinstance(value, int | float):
        return ": write it in quotes"
    if wanted in ("a number", "a whole number", "true or false") and isinstance(value, str):
        return ": write it without quotes"
    if wanted == "a list" and isinstance(value, Mapping):
        return f": write [[{key}]], or {last} = [{{ … }}]"
    if wanted == "a list":
        return ": write it in brackets, [ … ]"
    if wanted == "a table" and isinstance(value, Sequence) and not isinstance(value, str):
        return f": write [{key}], not [[{key}]]"
    return f": write {last} = {{ … }}" if wanted == "a table" else ""
