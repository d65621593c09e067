"""Write docs/reference from the code it describes; `--check` only says what differs.

Usage: python scripts/make_reference.py [--check]
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticUndefined

from fleetctl.cli import app as command_line
from fleetctl.errors import ExitCode
from fleetctl.spec.bisect import Base, Bisect, Change, Minimize, SearchTrials
from fleetctl.spec.experiment import (
    CommandSpec,
    Experiment,
    Head,
    Jit,
    Patch,
    ToolcallSpec,
    VerdictSpec,
)
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.matrix import Matrix
from fleetctl.spec.ready import Layer, Ready

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- made by scripts/make_reference.py; edit the docstrings it is made from -->\n"

EXIT_CODES = {
    ExitCode.OK: "done; for a run: a firm verdict, or the one that `expect` names",
    ExitCode.INTERNAL: "a bug in fleetctl; the traceback is printed",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.REFUSED: "refused before any change: spec, edit, lease, drift, unreachable host",
    ExitCode.FAILED_RESTORED: "failed after a change; every host was restored",
    ExitCode.FAILED_NOT_RESTORED: "a host is not restored, or can't be asked; the message names it",
    ExitCode.CONFLICT: "restored, except files that somebody else had changed meanwhile",
    ExitCode.INCONCLUSIVE: "measured, restored, and nothing firm can be said",
    ExitCode.INVALID: "measured and restored, but the measurement may not be judged",
    ExitCode.UNEXPECTED_VERDICT: "the verdict is not the expected one",
    ExitCode.INTERRUPTED: "stopped by the operator; the message says what state the hosts are in",
}

MINIMISATIONS = """\
A search for the few that matter (`fleetctl minimize`) has these, `[[change]]`, `[base]` and
`[trials]` as a bisection has them, and `[experiment]`, `[workload]`, `[ready]` and `[jit]` as an
experiment has them.
"""

JSON_ERRORS = """## Errors with `--json`

With `--json` stdout holds exactly one JSON document, also when a command fails; the exit code is
the same, and stderr tells the error to people all the same. An error is one line:

    {"error": {"kind": "InputError", "what": "…", "why": "…", "next_step": "…", "exit_code": 3}}

`kind` is the class in `fleetctl/errors.py`, or `UsageError` (2) for a wrong command line. A refused
edit has its `code` and `line` as well, a conflict its files in `conflicts`. A command that measured
before it failed prints its report with the same `error` in it; commands that ask several hosts
print a list in which each host has an `answer` or an `error`. `classify` lists what it could not
read in `not_understood` beside what it could.
"""


def spec_page() -> str:
    """Return the page of experiments and matrices."""
    parts = [MADE, "# Specs\n", "An experiment (`fleetctl run`) has these tables and keys.\n"]
    parts += _tables("", Experiment, set())
    parts += ["\n# Matrices\n", "A matrix (`fleetctl matrix`) has these.\n"]
    parts += _tables("", Matrix, {Experiment, ToolcallSpec, CommandSpec})
    known = {ToolcallSpec, CommandSpec, Head, Patch, Ready, Layer, VerdictSpec, Jit}
    parts += [
        "\n# Bisections\n",
        "A search for one of many changes (`fleetctl bisect`) has these, and `[experiment]`, "
        "`[workload]`, `[verdict]`, `[ready]` and `[jit]` as an experiment has them.\n",
    ]
    parts += _tables("", Bisect, set(known))
    parts += ["\n# Minimisations\n", MINIMISATIONS]
    parts += _tables("", Minimize, {*known, Change, Base, SearchTrials})
    return "\n".join(parts)


def inventory_page() -> str:
    """Return the page of inventories."""
    text = "`[defaults]` may hold any key of a host. Secrets never stand in the file.\n"
    return "\n".join([MADE, "# Inventory\n", text, *_tables("", Inventory, set())])


def exit_code_page() -> str:
    """Return the page of exit codes."""
    rows = [f"| {int(code)} | `{code.name}` | {EXIT_CODES[code]} |" for code in ExitCode]
    head = ["| code | name | meaning |", "| --- | --- | --- |"]
    first = "A run that rolled back never exits 0.\n"
    return "\n".join([MADE, "# Exit codes\n", first, *head, *rows, "", JSON_ERRORS])


def command_page() -> str:
    """Return the page of commands, as `--help` prints them."""
    parts = [MADE, "# Commands\n"]
    for name, text in sorted(command_line.help_texts().items()):
        parts += [f"## {name}\n", "```", text.strip(), "```", ""]
    return "\n".join(parts)


PAGES = {
    "spec.md": spec_page,
    "inventory.md": inventory_page,
    "exit-codes.md": exit_code_page,
    "commands.md": command_page,
}


def _tables(path: str, model: type[BaseModel], seen: set[type[BaseModel]]) -> list[str]:
    """Return the sections of a model and of those inside it, each model once."""
    if model in seen:
        return []
    seen.add(model)
    inner = {name: _models(field.annotation) for name, field in model.model_fields.items()}
    keys = [name for name in model.model_fields if path or not inner[name]]
    lines = [f"\n## `{path}`\n"] if path else []
    lines += [_summary(model) + "\n"] if path else []
    if keys:
        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(model, name) for name in keys]
    for name, models in inner.items():
        for found in models:
            lines += _tables(_join(path, name, model, len(models)), found, seen)
    return lines


def _join(path: str, name: str, model: type[BaseModel], choices: int) -> str:
    annotation = str(model.model_fields[name].annotation)
    many = "tuple" in annotation
    inner = f"{path.strip('[]')}.{name}" if path else name
    inner += ".NAME" if "dict[" in annotation else ""
    return f"[[{inner}]]" if many else f"[{inner}]" + (" (one kind)" if choices > 1 else "")


def _row(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    kind = _type(field.annotation, field.metadata)
    default = field.get_default(call_default_factory=True)
    shown = "required" if default is PydanticUndefined else _spell(default, kind)
    return f"| `{name}` | {kind} | {shown} | {_meanings(model).get(name, '')} |"


def _spell(value: object, kind: str) -> str:
    if isinstance(value, BaseModel):
        return "see below"
    if value in ((), None, "") or value == {}:
        return "none"
    if kind == "duration" and isinstance(value, float):
        return f'`"{value:g}s"`'
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


_READ_BY = {
    "duration_s": "duration",
    "lease_s": "duration",
    "share": "share",
    "only_false": "`false`",
}


def _type(annotation: object, metadata: Sequence[object]) -> str:
    """Return a type in the words of TOML's users."""
    for found in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(found, BeforeValidator):
            return _READ_BY[found.func.__name__]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0], inner[1:])
    if origin in (Union, types.UnionType):
        kinds = [_type(kind, ()) for kind in inner if kind is not types.NoneType]
        return " or ".join(dict.fromkeys(kinds))
    if origin is Literal:
        return "one of " + ", ".join(f"`{str(value).lower()}`" for value in inner)
    if origin is tuple:
        return f"list of {_type(inner[0], ())}"
    if origin is dict:
        return f"table of {_type(inner[1], ())}"
    words = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
    name = getattr(annotation, "__name__", str(annotation))
    return words.get(name, "table")


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    inner = getattr(annotation, "__args__", ())
    return [model for argument in inner for model in _models(argument)]


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").split("\n\n")[0].strip()


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return what the docstring says of each attribute."""
    block = (model.__doc__ or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in block.splitlines():
        if match := re.match(r" {8}(\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return {key: text.replace("|", "\\|") for key, text in found.items()}


def main() -> int:
    """Write or check the pages."""
    differing = []
    for name, make in PAGES.items():
        path = REFERENCE / name
        text = make().rstrip() + "\n"
        if not path.exists() or path.read_text() != text:
            differing.append(name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for name in differing:
        print(f"docs/reference/{name} {'differs' if '--check' in sys.argv else 'written'}")
    return int(bool(differing) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
