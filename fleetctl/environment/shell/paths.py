"""Paths as `cd`, `pwd` and `dirname` make them: text alone, `HOLE` where it does not tell."""

from __future__ import annotations

import posixpath

from fleetctl.environment.shell.dataflow import HOLE


def parent_of(path: str) -> str:
    """Return what `dirname` says."""
    if HOLE in path and not _is_told(path):
        return HOLE
    stripped = path.rstrip("/")
    if not stripped:
        return "/" if path else "."
    return posixpath.dirname(stripped).rstrip("/") or ("/" if "/" in stripped else ".")


def _is_told(path: str) -> bool:
    head, slash, name = path.rpartition("/")
    return bool(slash and name and HOLE not in name and head)


def moved(directory: str, path: str) -> str:
    """Return where `cd PATH` leads from a directory, `..` taken by the text as `cd` does."""
    full = path if path.startswith("/") else f"{directory}/{path}"
    if HOLE in full or not full.startswith("/"):
        return HOLE
    return posixpath.normpath(full)
