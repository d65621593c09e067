"""Variants: modules found by name, that say which they are.

A family (indexer, runner, cache) is a contract; a variant is a small module with a `NAME` and a
`build` function that fulfils it. The engine is told which modules to import and logs one marker
line for each, with the hash of the source file that was really read.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "indexer": ("transient", "persistent_logits", "persistent_all", "eager"),
    "runner": ("eager", "captured", "differential", "ordered_streams"),
    "cache": ("bf16", "fp8", "guarded"),
}

# What every variant of a family can be asked for.
PARTS: Mapping[str, tuple[str, ...]] = {
    "indexer": ("select",),
    "runner": ("buckets", "prepare", "step", "findings"),
    "cache": ("pools", "key_format", "expect", "verify"),
}


class UnknownVariantError(LookupError):
    """A variant that nobody wrote; the message lists those that exist."""


@dataclass(frozen=True)
class Loaded:
    """A variant module as this process imported it.

    Attributes:
        family: `indexer`, `runner` or `cache`.
        name: what the module calls itself.
        module: the name it was imported by.
        file: where its source was read.
        sha256: of that file, in hex.
        build: makes the variant from the family's parts.
    """

    family: str
    name: str
    module: str
    file: str
    sha256: str
    build: Callable[..., Any]

    @property
    def marker(self) -> str:
        """The log line that proves which variant runs."""
        return f"[variant] {self.family}={self.name} sha256={self.sha256[:12]} file={self.file}"

    def make(self, parts: object) -> Any:  # noqa: ANN401 - what the family's contract says
        """Return the variant, built from the family's parts.

        Raises:
            ImportError: the module is of another family, or its `build` is broken.
        """
        try:
            built = self.build(parts)
        except (AttributeError, TypeError) as error:
            why = f"{self.module} builds no {self.family}: {_told(error)}"
            raise ImportError(f"{why}; {_advice(self.family)}") from error
        missing = [name for name in PARTS[self.family] if not hasattr(built, name)]
        if missing:
            why = f"{self.module} is no {self.family}: it has no {', '.join(missing)}"
            raise ImportError(f"{why}; {_advice(self.family)}")
        return built


def lookup(table: Mapping[str, T], name: str, *, kind: str = "variant") -> T:
    """Return the entry, or say which there are.

    Raises:
        UnknownVariantError: no such name.
    """
    try:
        return table[name]
    except KeyError:
        known = ", ".join(table)
        raise UnknownVariantError(f"unknown {kind}: {name}; there are {known}") from None


def load(family: str, module_name: str) -> Loaded:
    """Import a variant module.

    Raises:
        ImportError: there is no such module, it fails, or it is no variant (no `NAME` or no
            `build`).
    """
    module = _import(family, module_name)
    name, build, file = (getattr(module, key, None) for key in ("NAME", "build", "__file__"))
    if not (isinstance(name, str) and callable(build) and isinstance(file, str)):
        why = f"{module_name} is no {family} variant: it needs NAME and build"
        raise ImportError(f"{why}; {_advice(family)}")  # noqa: TRY004 - not importable as one
    return Loaded(family, name, module_name, file, _sha256(module), build)


def diff(family: str, first: str, second: str) -> str:
    """Return the unified diff of two variants of a family.

    Raises:
        UnknownVariantError: no such family or variant.
    """
    names = lookup(FAMILIES, family, kind="family")
    paths = {name: Path(__file__).parent / family / f"{name}.py" for name in names}
    texts = [
        (str(path.relative_to(Path(__file__).parent.parent)), path.read_text(encoding="utf-8"))
        for path in (lookup(paths, first), lookup(paths, second))
    ]
    (from_file, old), (to_file, new) = texts
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), from_file, to_file
    )
    return "".join(lines)


def _import(family: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ImportError(f"{error.msg}; {_advice(family)}") from error
        raise ImportError(f"{module_name} cannot be imported: {_told(error)}") from error
    except Exception as error:
        why = f"{module_name!r} cannot be imported: {_told(error)}"
        raise ImportError(f"{why}; {_advice(family)}") from error


def _advice(family: str) -> str:
    return f"--{family} takes a module's name, such as payload.{family}.{FAMILIES[family][0]}"


def _told(error: Exception) -> str:
    """Return what went wrong, and where."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = "" if isinstance(error, SyntaxError) else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {error}{place}"


def _sha256(module: ModuleType) -> str:
    return hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Print the diff of two variants: `python -m payload.variant diff indexer transient eager`."""
    match arguments:
        case ["diff", family, first, second]:
            try:
                sys.stdout.write(diff(family, first, second))
            except UnknownVariantError as error:
                sys.stderr.write(f"error: {error}\n")
                return 2
            return 0
        case _:
            sys.stderr.write("usage: python -m payload.variant diff FAMILY VARIANT VARIANT\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
