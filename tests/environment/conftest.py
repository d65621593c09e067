"""What the tests of this folder share: the real parser, bash with stub servers, systemd itself."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fleetctl.environment.shell.parser import Parser, system_parser

HERE = Path(__file__).parent


def load(path: Path):
    """Import a module by its path, once."""
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    return sys.modules[path.stem]


@pytest.fixture(scope="session")
def parser() -> Parser:
    """Shfmt and bash of this machine."""
    return system_parser()


@pytest.fixture
def oracle(tmp_path):
    """bash as the oracle for edits of scripts; see oracle.py."""
    return load(HERE / "oracle.py").Oracle(tmp_path)
