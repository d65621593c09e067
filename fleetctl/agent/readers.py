"""Which source files of a service mention an environment variable: a typo is read by nobody."""

from __future__ import annotations

import os
import re
from typing import Iterable, Iterator

from fleetctl.transaction.code import NameReaders, ProcessCode

_FILES_NAMED = 3
_SOURCES = (".py", ".pyx", ".cpp", ".cu", ".h", ".hpp", ".rs")
_MAX_FILE_BYTES = 8 * 1024 * 1024


def source_roots(tree: str, processes: Iterable[ProcessCode]) -> tuple[str, ...]:
    """Return the directories that hold a service's own source: its tree and its packages."""
    roots = {os.path.realpath(tree)} if tree not in ("", "/") else set()
    for process in processes:
        if "/" in process.main:
            roots.add(os.path.dirname(process.main))
        for module in process.modules:
            if module.file and module.kind == "source":
                roots.add(_package_of(module.module, module.file))
    nested = {root for root in roots if any(root.startswith(other + "/") for other in roots)}
    return tuple(sorted(roots - nested - {"/"}))


def _package_of(module: str, file: str) -> str:
    """Return the directory of the top-level package of `module`, or its only file."""
    path = os.path.realpath(file)
    if os.path.basename(path).startswith("__init__."):
        path = os.path.dirname(path)
    for _ in range(module.count(".")):
        path = os.path.dirname(path)
    return path


def find_readers(names: tuple[str, ...], roots: Iterable[str]) -> tuple[NameReaders, ...]:
    """Return, for each name, the first few files below `roots` that mention it as a word."""
    found: dict[str, list[str]] = {name: [] for name in names}
    words = {
        name: re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(name.encode()) + rb"(?![A-Za-z0-9_])")
        for name in names
    }
    for path, content in _sources(roots):
        for name, word in words.items():
            if len(found[name]) < _FILES_NAMED and word.search(content):
                found[name].append(path)
    return tuple(NameReaders(name, tuple(files)) for name, files in found.items())


def _sources(roots: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for root in roots:
        if os.path.isfile(root) and (content := _content(root)) is not None:
            yield root, content
        for directory, folders, files in os.walk(root):
            folders[:] = [folder for folder in folders if folder not in ("__pycache__", ".git")]
            for name in files:
                path = os.path.join(directory, name)
                if name.endswith(_SOURCES) and (content := _content(path)) is not None:
                    yield path, content


def _content(path: str) -> bytes | None:
    try:
        if os.path.getsize(path) > _MAX_FILE_BYTES:
            return None
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None
