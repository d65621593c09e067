"""Whether a tool call is the right one: its name, its arguments' form, its arguments' values."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable

from fleetctl.trial.events import Expectation
from fleetctl.trial.reply import Call

Tools = dict[str, dict[str, Any]]


def declared_tools(request: dict[str, Any]) -> Tools:
    """Return the parameter schema of each tool that a request declares, by name."""
    tools: Tools = {}
    declared = request.get("tools")
    for tool in declared if isinstance(declared, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            tools[function["name"]] = parameters if isinstance(parameters, dict) else {}
    return tools


def form_flags(call: Call, tools: Tools) -> frozenset[str]:
    """Return what is wrong with a call's arguments as text and against the tool's schema."""
    arguments, flag = parse_arguments(call.arguments)
    if flag:
        return frozenset({flag})
    if not isinstance(arguments, dict):
        return frozenset({"args_not_an_object"})
    schema = tools.get(call.name)
    return frozenset(_schema_flags(arguments, schema)) if schema else frozenset()


def parse_arguments(text: str) -> tuple[object, str]:
    """Return the arguments and "", or None and a flag that says why they can't be read.

    Arguments that are empty count as an empty object: several servers send that.
    """
    if not text.strip():
        return {}, ""
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates), ""
    except _DuplicateKeyError:
        return None, "args_duplicate_key"
    except (ValueError, RecursionError):
        return None, "args_duplicate_object" if _begins_with_object(text) else "args_not_json"


def is_expected(call: Call, expectation: Expectation) -> bool:
    """Tell whether the call is the one that was asked for."""
    arguments, _ = parse_arguments(call.arguments)
    if call.name != expectation.tool:
        return False
    return expectation.arguments is None or arguments == expectation.arguments


def strings_in(value: object) -> Iterator[str]:
    """Yield every string inside a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from (key, *strings_in(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


class _DuplicateKeyError(ValueError):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DuplicateKeyError
    return found


def _begins_with_object(text: str) -> bool:
    """Tell whether a whole object stands first and something follows it, as in `{…}{…}`."""
    try:
        first, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict)


def _schema_flags(arguments: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    validator = _validator(json.dumps(schema, sort_keys=True))
    try:
        if validator is None:
            yield "schema_unusable"
        elif not validator.is_valid(arguments):
            yield "args_against_schema"
    except (Unresolvable, RecursionError):
        yield "schema_unusable"


@functools.lru_cache(maxsize=256)
def _validator(schema_json: str) -> jsonschema.Draft202012Validator | None:
    schema = json.loads(schema_json)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return None
    # An empty registry: a schema must never make this client fetch something.
    return jsonschema.Draft202012Validator(schema, registry=Registry())
