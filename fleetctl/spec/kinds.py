"""What kind of TOML file is this: an experiment, a matrix, a search or an inventory?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import tomli

from fleetctl.errors import InputError


class Kind(StrEnum):
    """What a TOML file may be, as people call it."""

    EXPERIMENT = "an experiment"
    MATRIX = "a matrix"
    BISECTION = "a bisection"
    MINIMISATION = "a minimisation"
    INVENTORY = "an inventory"


@dataclass(frozen=True)
class _Sign:
    """A table that tells the kind, or kinds, of a file."""

    table: str
    kinds: tuple[Kind, ...]


# the first that stands in a file decides; every spec has [experiment], and a matrix may have
# patches and flags of every cell
_SIGNS = (
    _Sign("matrix", (Kind.MATRIX,)),
    _Sign("factor", (Kind.MATRIX,)),
    _Sign("minimize", (Kind.MINIMISATION,)),
    _Sign("bisect", (Kind.BISECTION,)),
    _Sign("commits", (Kind.BISECTION,)),
    _Sign("change", (Kind.BISECTION, Kind.MINIMISATION)),
    _Sign("hosts", (Kind.INVENTORY,)),
    _Sign("control", (Kind.EXPERIMENT,)),
    _Sign("patch", (Kind.EXPERIMENT,)),
    _Sign("env", (Kind.EXPERIMENT,)),
    _Sign("experiment", (Kind.EXPERIMENT, Kind.MATRIX, Kind.BISECTION, Kind.MINIMISATION)),
)

_USES = {
    Kind.EXPERIMENT: "`fleetctl run {path}` runs it",
    Kind.MATRIX: "`fleetctl matrix {path}` measures it",
    Kind.BISECTION: "`fleetctl bisect {path}` searches it",
    Kind.MINIMISATION: "`fleetctl minimize {path}` searches it",
    Kind.INVENTORY: "`--inventory {path}` takes it, and a spec stands in its place",
}


def refuse_other_kind(path: Path, tables: Collection[str], wanted: Kind) -> None:
    """Refuse a file whose tables say that it is something else than wanted.

    A file whose tables tell nothing is left to whoever reads it.

    Raises:
        InputError: it names the command that takes such a file.
    """
    sign = next((sign for sign in _SIGNS if sign.table in tables), None)
    if sign is None or wanted in sign.kinds:
        return
    found = "a spec" if sign.table == "experiment" else " or ".join(sign.kinds)
    uses = ", ".join(_USES[kind].format(path=path) for kind in sign.kinds[:2])
    raise InputError(
        f"{path} is {found}, not {wanted}",
        why=f"it has a table `{sign.table}`{_lacks(wanted)}",
        next_step=uses,
    )


def _lacks(wanted: Kind) -> str:
    own = [f"`{sign.table}`" for sign in _SIGNS if sign.kinds == (wanted,)]
    return "" if wanted is Kind.EXPERIMENT else f", and none called {' or '.join(own)}"


def is_matrix(path: Path) -> bool:
    """Return whether a file has tables of a matrix; the loader judges unreadable ones."""
    try:
        return not {"matrix", "factor"}.isdisjoint(tomli.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return False
