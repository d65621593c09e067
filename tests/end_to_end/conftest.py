"""Somebody at a shell with the session's lab; see `fleets.py`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.fleets import EVERYTHING, LEFTOVERS, Person


@pytest.fixture
def person(lab_hosts, tmp_path) -> Person:
    """Somebody with the session's lab: leave its hosts as you found them."""
    lab_hosts.wait_until_active("lab-1")
    return Person(tmp_path, lab_hosts.inventory)


@pytest.fixture
def untouched(lab_hosts) -> Callable[[], None]:
    """Call it to see that lab-1 is, byte for byte, what it was when the test began."""
    before = lab_hosts.run("lab-1", EVERYTHING)

    def check() -> None:
        assert lab_hosts.run("lab-1", EVERYTHING) == before
        assert lab_hosts.run("lab-1", f"{LEFTOVERS}true") == ""

    return check


@pytest.fixture
def repository_copy(tmp_path) -> Path:
    """The experiments and the payload of this repository, to be changed at will."""
    root = Path(__file__).parents[2]
    for name in ("experiments", "payload"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path
