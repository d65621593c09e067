"""The right answer to any request, in plain Python.

Written from the definition in `payload/README.md`, and sharing nothing with the engine but the
spelling of tokens: it looks at the request's JSON, never at positions, pointers or pages. What the
engine says must equal it, token for token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from payload.engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class Expected:
    """A healthy answer.

    Attributes:
        text: what the model generates, markup included, before `max_tokens` cuts it.
        tokens: its tokens with the end token.
        content: what the client sees as content; None when there is none.
        calls: (function name, arguments) of each tool call.
    """

    text: str
    tokens: tuple[int, ...]
    content: str | None
    calls: tuple[tuple[str, dict[str, Any]], ...]


def expected(body: dict[str, Any], tokenizer: Tokenizer) -> Expected:
    """Return the right answer to a request body that the server accepts."""
    messages = body["messages"]
    calls = _calls(body, messages)
    if calls:
        markup = "\n".join(_dsml(name, arguments) for name, arguments in calls)
        content = "Let me look that up."
        text = f"{content}\n\n<｜DSML｜tool_calls>\n{markup}\n</｜DSML｜tool_calls>"
    else:
        content = text = _talk(messages)
    tokens = [piece.token for piece in tokenizer.pieces(text, markup=True)]
    return Expected(text, (*tokens, tokenizer.eos), content, tuple(calls))


def _calls(body: dict[str, Any], messages: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    choice = body.get("tool_choice") or "auto"
    functions = [tool["function"] for tool in body.get("tools") or []]
    if choice == "none" or not functions:
        return []
    if messages[-1]["role"] == "tool":
        return _continued(functions, messages)[:8]
    if messages[-1]["role"] == "user":
        return _asked(functions, choice, messages)[:8]
    return []


def _asked(functions: list[Any], choice: object, messages: list[Any]) -> list[Any]:
    names = [function["name"] for function in functions]
    said = _text(messages[-1])
    values = _opaque(said, names)
    if isinstance(choice, dict):
        chosen = [choice["function"]["name"]]
    else:
        chosen = _unique(w for w in re.findall(r"[A-Za-z0-9_-]+", said) if w in names)
        if not chosen and (values or choice == "required"):
            chosen = names[:1]
    older = [_opaque(_text(message), names) for message in reversed(messages[:-1])]
    values = values or next((found[-1:] for found in older if found), [])
    picked = [functions[names.index(name)] for name in chosen]
    if len(picked) == 1 and len(_free(picked[0])) == 1 and len(values) > 1:
        return [(picked[0]["name"], _fill(picked[0], [value])) for value in values]
    return [(function["name"], _fill(function, values)) for function in picked]


def _continued(functions: list[Any], messages: list[Any]) -> list[Any]:
    table = {function["name"]: function for function in functions}
    callers = {
        call.get("id") or "": call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or []
    }
    found = []
    for message in _results(messages):
        caller = callers.get(message.get("tool_call_id") or "")
        function = table.get(caller, functions[0])
        for key, value in _object(_text(message)).items():
            parameter = key[5:] if key.startswith("next_") else None
            if parameter not in _properties(function) or not isinstance(value, str):
                continue
            if value in _opaque(value, []) and _is_plain(parameter):
                found.append((function["name"], {**_fill(function, [value]), parameter: value}))
    return found


def _talk(messages: list[Any]) -> str:
    results = _results(messages)
    if results:
        return " ".join(_sentence(_text(message)) for message in results)
    words = _first_words(_text(messages[-1]))
    return f"You said: {words}." if words else "Hello."


def _sentence(content: str) -> str:
    fields = _object(content)
    name, value = list(fields.items())[-1] if fields else ("result", content)
    subject = _first_words(name.replace("_", " ")) or "result"
    value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"The {subject} is {_first_words(value) or 'empty'}."


def _results(messages: list[Any]) -> list[Any]:
    found: list[Any] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        found.insert(0, message)
    return found


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _opaque(text: str, names: list[str]) -> list[str]:
    runs = re.findall(r"[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*", text)
    return _unique(
        run
        for run in runs
        if len(run) > 3
        and re.search("[0-9]", run)
        and re.search("[A-Za-z]", run)
        and run not in names
    )


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _first_words(text: str) -> str:
    words = re.findall(r"[A-Za-z0-9][A-Za-z0-9'_.,:-]{0,31}", text)
    return " ".join(words[:16]).rstrip(".,:;")


def _properties(function: dict[str, Any]) -> dict[str, Any]:
    return (function.get("parameters") or {}).get("properties") or {}


def _parameters(function: dict[str, Any]) -> list[str]:
    properties = _properties(function)
    required = (function.get("parameters") or {}).get("required") or []
    named = [name for name in required if name in properties] or list(properties)
    return [name for name in named if _is_plain(name)]


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 64 and not set(name) & set('"<>\n')


def _free(function: dict[str, Any]) -> list[str]:
    return [name for name in _parameters(function) if _is_free(_schema(function, name))]


def _schema(function: dict[str, Any], name: str) -> dict[str, Any]:
    schema = _properties(function)[name]
    return schema if isinstance(schema, dict) else {}


def _is_free(schema: dict[str, Any]) -> bool:
    return schema.get("type", "string") == "string" and not schema.get("enum")


def _fill(function: dict[str, Any], values: list[str]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    taken = 0
    for name in _parameters(function):
        schema = _schema(function, name)
        if _is_free(schema):
            filled[name] = values[min(taken, len(values) - 1)] if values else "unknown"
            taken += 1
        else:
            filled[name] = _constant(schema)
    return filled


def _constant(schema: dict[str, Any]) -> object:
    if schema.get("enum"):
        return None if "<" in json.dumps(schema["enum"][0]) else schema["enum"][0]
    match schema.get("type"):
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return []
        case "object":
            return {}
        case _:
            return None


def _dsml(name: str, arguments: dict[str, Any]) -> str:
    lines = [f'<｜DSML｜invoke name="{name}">']
    for key, value in arguments.items():
        is_text = isinstance(value, str)
        written = value if is_text else json.dumps(value, ensure_ascii=False)
        kind = "true" if is_text else "false"
        lines.append(
            f'<｜DSML｜parameter name="{key}" string="{kind}">{written}</｜DSML｜parameter>'
        )
    return "\n".join([*lines, "</｜DSML｜invoke>"])
