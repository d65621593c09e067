"""systemd itself as the oracle: its parser of units (`systemd --test`) and of environment files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "cases" / "serve_scripts"


def load(name: str):
    """Import one of the judges of the shared cases."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, CASES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def judge():
    """check_systemd.py, which knows how to ask systemd."""
    load("check_shell")
    return load("check_systemd")


@pytest.fixture(scope="session")
def systemd(judge):
    """The real systemd; skipped where there is none."""
    oracle = judge.Oracle()
    if not oracle.ok:
        pytest.skip(oracle.why)
    yield oracle
    oracle.close()
