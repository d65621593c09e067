"""Asked of the service's own interpreter: where would it import these modules from?

Runs by itself (`python -c SOURCE JSON`) with the flags, directory and environment of a serving
process. Nothing of the service is imported: packages are found finder by finder, so that asking
starts no CUDA context and runs nobody's `__init__`. The answer is one line behind a mark, because
`sitecustomize` and `.pth` files may print.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import marshal
import os
import sys
import types
from typing import Any

MARK = "fleetctl-probe:"


def locate(module: str) -> dict[str, Any]:
    """Return where `module` would come from, or why it would not.

    `kind` is source, bytecode, extension, builtin, namespace, missing or not-a-package;
    `shadow` names a namespace package on the way: a bare directory that stands for a package.
    """
    parts = module.split(".")
    path: list[str] | None = None
    shadow: dict[str, Any] | None = None
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        spec, _ = _find(name, path)
        if spec is None:
            return _missing(module, name, path, shadow)
        below = _search_path(spec)
        if below is None:
            return {"module": module, "kind": "not-a-package", "at": name, "file": spec.origin}
        if spec.origin is None and shadow is None:
            shadow = {"at": name, "directories": below}
        _stand_in(name, below)
        path = below
    spec, finder = _find(module, path)
    if spec is None:
        return _missing(module, module, path, shadow)
    return dict(_described(module, spec, finder), shadow=shadow)


def examine(path: str) -> dict[str, Any]:
    """Return what lies at a path, and whether old bytecode of it would run."""
    if not os.path.isfile(path):
        return {"module": path, "kind": "missing", "at": path, "searched": []}
    answer: dict[str, Any] = {
        "module": path,
        "kind": "source",
        "file": path,
        "sha256": _sha256(path),
    }
    if path.endswith(".py"):
        answer["bytecode"] = bytecode_state(path, importlib.util.cache_from_source(path))
    return answer


def _missing(
    module: str, name: str, path: list[str] | None, shadow: dict[str, Any] | None
) -> dict[str, Any]:
    searched = sys.path if path is None else path
    return {
        "module": module,
        "kind": "missing",
        "at": name,
        "searched": searched,
        "shadow": shadow,
    }


def _find(name: str, path: list[str] | None) -> Any:
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(name, path) if find_spec else None
        if spec is not None:
            kind = finder if isinstance(finder, type) else type(finder)
            return spec, f"{kind.__module__}.{kind.__qualname__}"
    return None, ""


def _stand_in(package: str, path: list[str]) -> None:
    """Let finders see a package that was found, but not imported.

    A namespace package below another package looks its parent's path up in `sys.modules`.
    """
    if package not in sys.modules:
        parent = types.ModuleType(package)
        parent.__path__ = path
        sys.modules[package] = parent


def _search_path(spec: Any) -> list[str] | None:
    locations = spec.submodule_search_locations
    return None if locations is None else list(locations)


def _described(module: str, spec: Any, finder: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"module": module, "finder": finder, "file": spec.origin}
    if spec.origin is None:
        return dict(answer, kind="namespace", directories=_search_path(spec))
    if spec.origin in ("built-in", "frozen"):
        return dict(answer, kind="builtin")
    if spec.origin.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        return dict(answer, kind="extension", sha256=_sha256(spec.origin))
    if spec.origin.endswith(".pyc"):
        return dict(answer, kind="bytecode", sha256=_sha256(spec.origin))
    answer.update(kind="source", sha256=_sha256(spec.origin))
    answer["bytecode"] = bytecode_state(spec.origin, spec.cached)
    return answer


def bytecode_state(source: str, cached: str | None) -> dict[str, Any]:
    """Return whether cached bytecode would run, and whether it says what the source says.

    `state` is none, unused (the interpreter would recompile), current or stale.
    """
    if not cached or not os.path.exists(cached):
        return {"path": cached, "state": "none"}
    with open(cached, "rb") as stream:
        data = stream.read()
    if not _would_be_used(data, source):
        return {"path": cached, "state": "unused"}
    with open(source, "rb") as stream:
        text = stream.read()
    optimize = int(cached.rsplit(".opt-", 1)[1].split(".")[0]) if ".opt-" in cached else 0
    try:
        fresh = compile(text, source, "exec", dont_inherit=True, optimize=optimize)
        same = marshal.loads(data[16:]) == fresh
    except (ValueError, EOFError, TypeError, SyntaxError):
        same = False
    return {"path": cached, "state": "current" if same else "stale"}


def _would_be_used(data: bytes, source: str) -> bool:
    """Return whether the import system would take this bytecode (PEP 552)."""
    if len(data) < 16 or data[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags = int.from_bytes(data[4:8], "little")
    if flags & 1:
        checked = bool(flags & 2)
        with open(source, "rb") as stream:
            return not checked or importlib.util.source_hash(stream.read()) == data[8:16]
    status = os.stat(source)
    mtime_s = int.from_bytes(data[8:12], "little")
    size_bytes = int.from_bytes(data[12:16], "little")
    return (
        mtime_s == int(status.st_mtime) & 0xFFFFFFFF and size_bytes == status.st_size & 0xFFFFFFFF
    )


def _sha256(path: str) -> str | None:
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return None


def main() -> None:
    """Answer one question: `{"modules": [...], "files": [...], "path0": "..."}`."""
    question = json.loads(sys.argv[1])
    if sys.path and sys.path[0] == "":
        sys.path[0] = question.get("path0") or os.getcwd()
    answer = {
        "modules": [locate(module) for module in question["modules"]]
        + [examine(path) for path in question.get("files", ())],
        "prefix": sys.prefix,
        "executable": sys.executable,
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "path": sys.path,
    }
    sys.stdout.write("\n" + MARK + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
